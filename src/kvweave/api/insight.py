"""`POST /v1/explain` and `GET /v1/quality`: what reuse does to prompts, and to answers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from kvweave.api.body import read_body
from kvweave.api.errors import ApiError, model_not_allowed, model_not_found
from kvweave.api.exchange import caller_of
from kvweave.api.local import LocalModel
from kvweave.api.schema import ExplainRequest, ReuseParams
from kvweave.config import ServerConfig


async def explain_prompt(request: Request, local: LocalModel, limits: ServerConfig) -> Response:
    """What would become of every token of a chat request's prompt.

    Raises:
        ApiError: the caller may not use the model.
        FormatError, PromptError: the body is not valid.
    """
    caller = caller_of(request.scope)
    if not caller.may_use(local.name):
        raise model_not_allowed(local.name)
    body = await read_body(request, ExplainRequest, limits)
    if body.model and body.model != local.name:
        raise model_not_found(body.model, [local.name])
    prompt = await local.prompt(body, caller.tenant)
    reuse = (body.kvweave or ReuseParams()).options()
    explanation = await local.engine.explain(prompt, reuse, tenant=caller.tenant)
    return JSONResponse({"model": local.name, **explanation.to_json()})


def show_quality(local: LocalModel) -> Response:
    """The quality check, the audits, and the ratio that is served.

    Raises:
        ApiError: the engine has no guard.
    """
    quality = local.engine.quality()
    if quality is None:
        raise ApiError(404, "The quality of this engine is not guarded.", code="no_quality_guard")
    return JSONResponse(quality)
