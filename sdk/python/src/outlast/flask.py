"""The adapter for Flask."""

from __future__ import annotations

from flask import Blueprint, Response, request

from .errors import BodyConsumed
from .webhook import Webhook


def blueprint(hook: Webhook, path: str = "/hook", name: str = "outlast") -> Blueprint:
    """A blueprint that answers deliveries: `app.register_blueprint(blueprint(hook))`."""
    made = Blueprint(name, __name__)

    def deliver() -> Response:
        body = request.get_data(cache=True, parse_form_data=False)
        if not body and (request.content_length or 0) > 0:
            raise BodyConsumed(
                "the body was read before the webhook: move the code that uses `request.form`, `request.files` or "
                "`request.stream` (a before_request function, say) out of the way of this path"
            )
        answer = hook.handle(dict(request.headers), body)
        return Response(answer.body, answer.status, answer.headers)

    made.add_url_rule(path, "deliver", deliver, methods=["POST"])
    return made
