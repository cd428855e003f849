"""The adapter for FastAPI, and for Starlette by its `Request`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from .errors import BodyConsumed
from .webhook import Webhook


def fastapi_router(hook: Webhook, path: str = "/hook") -> APIRouter:
    """A router that answers deliveries: `app.include_router(fastapi_router(hook))`."""
    router = APIRouter()

    # The annotations are given as objects: FastAPI resolves texts in this module, where `Request` may be shadowed.
    async def deliver(request: Any) -> Response:
        answer = await hook.handle_async(request.headers, await _raw_body(request))
        return Response(answer.body, answer.status, answer.headers)

    deliver.__annotations__ = {"request": Request, "return": Response}
    router.add_api_route(path, deliver, methods=["POST"], include_in_schema=False)
    return router


async def _raw_body(request: Request) -> bytes:
    try:
        return bytes(await request.body())
    except RuntimeError as error:
        raise BodyConsumed(
            "a middleware has read the body before the webhook: add the router before that middleware, or let it call "
            "`await request.body()`, which keeps the bytes, instead of reading `request.stream()`"
        ) from error
