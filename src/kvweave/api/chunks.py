"""`POST /v1/chunks`: texts become known and are computed ahead."""

from __future__ import annotations

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvweave.api.body import read_body
from kvweave.api.errors import ApiError, model_not_allowed
from kvweave.api.exchange import exchange_of, reserve
from kvweave.api.local import PROVIDER_NAME, LocalModel
from kvweave.api.schema import ChunksRequest
from kvweave.config import ServerConfig
from kvweave.formats import Usage
from kvweave.prompt import chunk_digest, parse_documents


async def create_chunks(request: Request, local: LocalModel, limits: ServerConfig) -> Response:
    """Register texts for the caller's project, and compute and store their KV.

    Raises:
        ApiError: there are none, or one does not fit the model's context.
        FormatError, PromptError: the body is not valid.
    """
    exchange = exchange_of(request.scope)
    exchange.model = local.name
    exchange.asked(PROVIDER_NAME)
    if not exchange.caller.may_use(local.name):
        raise model_not_allowed(local.name)
    body = await read_body(request, ChunksRequest, limits)
    tenant = exchange.caller.tenant
    builder, engine = local.prompt_builder, local.engine
    documents = parse_documents(body.documents)
    texts = [(chunk.text, chunk.id) for chunk in body.chunks]
    texts += [(document.chunk_text, document.id) for document in documents]
    if not texts:
        raise ApiError(400, "chunks: must hold at least one text", param="chunks")

    def encode() -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
        return (
            builder.prefix_ids(body.system, tenant=tenant),
            [builder.encode_chunk(text) for text, _ in texts],
        )

    prefix_ids, encoded = await to_thread.run_sync(encode)
    tokens = sum(map(len, encoded))
    exchange.used(Usage(prompt_tokens=tokens))
    await reserve(request.scope, tokens)
    for (text, _), token_ids in zip(texts, encoded, strict=True):
        if len(prefix_ids) + len(token_ids) > engine.max_model_len:
            raise ApiError(
                400,
                f"A chunk of {len(token_ids)} tokens, after a system prefix of "
                f"{len(prefix_ids)}, does not fit the context of {engine.max_model_len}; "
                f"split it. It begins {text[:40]!r}.",
                param="chunks",
                code="context_length_exceeded",
            )
    data = []
    reusable = []
    for (text, chunk_id), token_ids in zip(texts, encoded, strict=True):
        chunk_id = chunk_id or chunk_digest(text)
        data.append({"id": chunk_id, "tokens": len(token_ids)})
        # What is too short to be a chunk in a prompt is not worth keeping as one.
        if len(token_ids) >= builder.min_chunk_tokens:
            local.registry.add(text, chunk_id, tenant=tenant)
            reusable.append(token_ids)
    await engine.warm(prefix_ids, list(dict.fromkeys(reusable)), tenant=tenant)
    return JSONResponse({"object": "list", "data": data})
