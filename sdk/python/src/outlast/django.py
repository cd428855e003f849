"""The adapter for Django."""

from __future__ import annotations

import asyncio
from typing import Any

from django.http import HttpRequest, HttpResponse, RawPostDataException
from django.urls import path as route
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .errors import BodyConsumed
from .webhook import Webhook, WebhookAnswer


def urlpatterns(hook: Webhook, path: str = "hook") -> list[Any]:
    """The URL patterns that answer deliveries: `urlpatterns = [*outlast.django.urlpatterns(hook), …]`."""

    def deliver(request: HttpRequest) -> HttpResponse:
        return _response(hook.handle(dict(request.headers), _raw_body(request)))

    # A signature protects the call; Django's own token is for browsers.
    return [route(path.lstrip("/"), csrf_exempt(require_POST(deliver)))]


def async_urlpatterns(hook: Webhook, path: str = "hook") -> list[Any]:
    """As `urlpatterns`, for a server with ASGI."""

    async def deliver(request: HttpRequest) -> HttpResponse:
        body = await asyncio.to_thread(_raw_body, request)
        return _response(await hook.handle_async(dict(request.headers), body))

    return [route(path.lstrip("/"), csrf_exempt(require_POST(deliver)))]


def _raw_body(request: HttpRequest) -> bytes:
    try:
        return bytes(request.body)
    except RawPostDataException as error:
        raise BodyConsumed(
            "the body was read before the webhook: move the code that uses `request.POST` or `request.read()` (a middleware, "
            "say) out of the way of this path"
        ) from error


def _response(answer: WebhookAnswer) -> HttpResponse:
    return HttpResponse(answer.body, status=answer.status, headers=answer.headers)
