"""The API as an OpenAPI document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from kvweave import __version__
from kvweave.api.schema import ChatCompletionRequest, ChunksRequest, ExplainRequest
from kvweave.formats.completions import CompletionsRequest
from kvweave.formats.messages.request import CountTokensRequest, MessagesRequest
from kvweave.formats.responses.request import ResponsesRequest


class EmbeddingsRequest(BaseModel):
    """Body of `POST /v1/embeddings`, passed through to a provider."""

    model: str
    input: str | list[str]


_POST: Mapping[str, tuple[str, type[BaseModel], bool]] = {
    "/v1/chat/completions": ("OpenAI's chat completions", ChatCompletionRequest, True),
    "/v1/completions": ("OpenAI's text completions", CompletionsRequest, True),
    "/v1/responses": ("OpenAI's responses", ResponsesRequest, True),
    "/v1/messages": ("Anthropic's messages", MessagesRequest, True),
    "/v1/messages/count_tokens": ("Length of a prompt", CountTokensRequest, False),
    "/v1/embeddings": ("Embeddings, from providers only", EmbeddingsRequest, False),
    "/v1/chunks": ("Register chunks and compute them ahead", ChunksRequest, False),
    "/v1/explain": ("What becomes of every token of a prompt", ExplainRequest, False),
}
_ENGINE_ONLY = ("/v1/chunks", "/v1/explain", "/v1/quality")
_GET = {
    "/v1/models": "The models",
    "/v1/models/{model}": "One model",
    "/v1/quality": "The quality check, the audits, and the ratio that is served",
    "/health": "Whether the server and its providers are well",
    "/metrics": "Prometheus metrics",
}
_REFUSALS = {
    "400": "The request is not valid",
    "401": "There is no key, or it is wrong",
    "403": "The key is not for this model",
    "404": "There is no such model",
    "413": "The body is too large",
    "422": "The provider cannot use the request",
    "429": "Too many requests; see Retry-After",
    "502": "The provider failed",
    "503": "The engine is not running",
    "504": "The provider did not answer in time",
}


def openapi_schema(*, has_engine: bool) -> dict[str, Any]:
    """The document. `has_engine`: whether the server runs an engine, which takes chunks."""
    posts = {path: told for path, told in _POST.items() if has_engine or path not in _ENGINE_ONLY}
    _, definitions = models_json_schema(
        [(model, "validation") for _, model, _ in posts.values()],
        ref_template="#/components/schemas/{model}",
    )
    paths: dict[str, Any] = {}
    for path, (summary, model, streams) in posts.items():
        schema = {"$ref": f"#/components/schemas/{model.__name__}"}
        paths[path] = {
            "post": {
                "summary": summary,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema}},
                },
                "responses": _responses(streams),
            }
        }
    for path, summary in _GET.items():
        if path in _ENGINE_ONLY and not has_engine:
            continue
        operation: dict[str, Any] = {"summary": summary, "responses": _responses(False)}
        if path == "/metrics":
            operation["responses"]["200"]["content"] = {"text/plain": {}}
        if "{model}" in path:
            name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
            operation["parameters"] = [name]
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "kvweave", "version": __version__},
        "paths": paths,
        "components": {"schemas": definitions["$defs"]},
    }


def _responses(streams: bool) -> dict[str, Any]:
    json: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    answers = {**json, "text/event-stream": {}} if streams else json
    return {"200": {"description": "The answer", "content": answers}} | {
        status: {"description": text, "content": json} for status, text in _REFUSALS.items()
    }
