"""Webhooks: signatures against the `standardwebhooks` package, and the adapters in the real frameworks with the real server."""

import http.client
import json
import threading
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any
from urllib.parse import urlsplit

import django
import django.test
import pytest
import standardwebhooks
import uvicorn
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from fastapi import FastAPI
from flask import Flask
from flask import request as flask_request
from programs_support import wait_until
from werkzeug.serving import make_server

from outlast import BadSignature, Defer, JobFailed, NotRetryable, Outlast
from outlast.django import urlpatterns
from outlast.fastapi import fastapi_router
from outlast.flask import blueprint
from outlast.testing import Server, sign_delivery
from outlast.webhook import Webhook, WebhookAnswer, parse_callback, signature, verify, webhook

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@contextmanager
def serve_fastapi(hook: Webhook) -> Iterator[str]:
    app = FastAPI()
    app.include_router(fastapi_router(hook, path="/hook"))
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/hook"
    finally:
        server.should_exit = True
        thread.join(30)


@contextmanager
def serve_wsgi(application: Any) -> Iterator[str]:
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook"
    finally:
        server.shutdown()
        thread.join(30)


@contextmanager
def serve_flask(hook: Webhook) -> Iterator[str]:
    app = Flask("receiver")
    app.register_blueprint(blueprint(hook, path="/hook"))
    with serve_wsgi(app) as url:
        yield url


@contextmanager
def serve_django(hook: Webhook) -> Iterator[str]:
    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=None, LOGGING_CONFIG=None, MIDDLEWARE=[])
        django.setup()
    module = types.ModuleType("receiver_urls")
    module.urlpatterns = urlpatterns(hook, path="hook")  # type: ignore[attr-defined]
    with django.test.override_settings(ROOT_URLCONF=module), serve_wsgi(get_wsgi_application()) as url:
        yield url


SERVERS = {"fastapi": serve_fastapi, "flask": serve_flask, "django": serve_django}


def post(url: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    try:
        connection.request("POST", parts.path, body, headers)
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def handle(job: Any) -> Any:
    """Ends in the way that the payload asks for."""
    wish = job.payload["wish"]
    if wish == "fail":
        raise ValueError("it broke")
    if wish == "dead":
        raise NotRetryable("no such address")
    if wish == "defer":
        raise Defer(90)
    if wish == "slow":
        time.sleep(job.payload["seconds"])
    if wish == "sections":
        return job.each_section(["a", "b"], lambda name: name)
    return {"wish": wish}


async def handle_async(job: Any) -> Any:
    return handle(job) if job.payload["wish"] != "sections" else await job.each_section(["a", "b"], _same)


async def _same(name: str) -> str:
    return name


@pytest.mark.parametrize("framework", SERVERS)
@pytest.mark.parametrize("handler", [handle, handle_async], ids=["def", "async def"])
@pytest.mark.parametrize("mode", ["standard", "ack"])
def test_deliveries_of_the_server_end_in_their_outcomes(
    framework: str, handler: Any, mode: str, outlast: Outlast, new_queue: Callable[..., str]
) -> None:
    hook = webhook(handler, secret=SECRET, outlast=outlast)
    with SERVERS[framework](hook) as url:
        queue = new_queue(
            webhook_url=url, mode=mode, signing_secret=SECRET, max_attempts=2, backoff={"type": "fixed", "delay": 0.1}
        )
        jobs = {wish: outlast.queue(queue).publish({"wish": wish}) for wish in ("work", "sections", "fail", "dead")}

        assert jobs["work"].result(timeout=60) == {"wish": "work"}
        assert jobs["sections"].result(timeout=60) == ["a", "b"]
        with pytest.raises(JobFailed) as failed:
            jobs["fail"].result(timeout=60)
        with pytest.raises(JobFailed) as dead:
            jobs["dead"].result(timeout=60)
        assert hook.close()

    assert failed.value.reason == "attempts_exhausted"
    assert dead.value.reason == "not_retryable"
    assert dead.value.job["attempt"] == 1


@pytest.mark.parametrize("framework", SERVERS)
def test_a_request_that_is_not_genuine_is_refused(framework: str, outlast: Outlast) -> None:
    ran: list[Any] = []
    hook = webhook(lambda job: ran.append(job.id), secret=SECRET, outlast=outlast)
    genuine = sign_delivery(SECRET, {"wish": "work"})
    with SERVERS[framework](hook) as url:
        assert post(url, {"content-type": "application/json"}, genuine.body)[0] == 401
        assert post(url, genuine.headers, genuine.body + b" ")[0] == 401
        assert post(url, sign_delivery("another secret of ours", {}).headers, genuine.body)[0] == 401
        assert ran == []
        assert post(url, genuine.headers, genuine.body)[0] == 200

    assert len(ran) == 1


def answer_of(hook: Webhook, payload: Any, **fields: Any) -> WebhookAnswer:
    delivery = sign_delivery(SECRET, payload, **fields)
    return hook.handle(delivery.headers, delivery.body)


def test_work_that_ends_in_time_is_answered_with_its_end(outlast: Outlast) -> None:
    hook = webhook(handle, secret=["an older secret of ours", SECRET], outlast=outlast)

    work = answer_of(hook, {"wish": "work"})
    fail = answer_of(hook, {"wish": "fail"})
    dead = answer_of(hook, {"wish": "dead"})
    defer = answer_of(hook, {"wish": "defer"})

    assert (work.status, json.loads(work.body)) == (200, {"wish": "work"})
    assert fail.status == 500
    assert "it broke" in json.loads(fail.body)["error"]
    assert "x-outlast-retry" not in fail.headers
    assert (dead.status, dead.headers["x-outlast-retry"]) == (500, "false")
    assert (defer.status, defer.headers["retry-after"]) == (429, "90")


def test_long_work_is_answered_with_202_and_its_lease_is_kept(outlast: Outlast, new_queue: Callable[..., str]) -> None:
    """The work is longer than two thirds of `webhookTimeout` and three times `ackTimeout`."""
    hook = webhook(handle, secret=SECRET, outlast=outlast)
    with serve_flask(hook) as url:
        queue = new_queue(webhook_url=url, signing_secret=SECRET, webhook_timeout=1, ack_timeout=3, max_attempts=1)
        job = outlast.queue(queue).publish({"wish": "slow", "seconds": 9})

        assert job.result(timeout=60) == {"wish": "slow"}
        assert hook.close()

    assert job.data["attempt"] == 1


def test_a_redelivery_of_running_work_hands_its_lease_over(outlast: Outlast, new_queue: Callable[..., str]) -> None:
    """The second delivery of the same webhook-id does not start the work again."""
    began, go_on, runs = threading.Event(), threading.Event(), []

    def handler(job: Any) -> str:
        runs.append(job.id)
        began.set()
        assert go_on.wait(60)
        return "once"

    hook = webhook(handler, secret=SECRET, outlast=outlast)
    with serve_flask(hook) as url:
        # The answer to the first delivery never comes in time: the server sends a second one.
        queue = new_queue(
            webhook_url=url, mode="ack", signing_secret=SECRET, ack_timeout=1, backoff={"type": "fixed", "delay": 0}
        )
        hook.keeper.is_loop_alive = lambda _: False
        job = outlast.queue(queue).publish(None)
        assert began.wait(60)
        wait_until(lambda: job.refresh().data["attempt"] >= 2 and job.status == "running")
        hook.keeper.is_loop_alive = lambda _: True
        time.sleep(0.3)
        go_on.set()

        assert job.result(timeout=60) == "once"
        assert hook.close()

    assert runs == [job.id]


def test_a_redelivery_of_finished_work_is_answered_from_memory(outlast: Outlast) -> None:
    runs: list[str] = []

    def handler(job: Any) -> int:
        runs.append(job.id)
        return len(runs)

    hook = webhook(handler, secret=SECRET, outlast=outlast)
    delivery = sign_delivery(SECRET, None)

    answers = [hook.handle(delivery.headers, delivery.body) for _ in range(3)]

    assert [answer.body for answer in answers] == [b"1"] * 3


def test_a_body_that_was_read_before_is_an_error_that_names_the_line(outlast: Outlast) -> None:
    hook = webhook(handle, secret=SECRET, outlast=outlast)
    app = Flask("receiver")
    app.testing = True
    app.register_blueprint(blueprint(hook))
    app.before_request(lambda: flask_request.stream.read() and None)
    delivery = sign_delivery(SECRET, {"wish": "work"})

    with pytest.raises(Exception, match="before_request") as error:
        app.test_client().post("/hook", data=delivery.body, headers=delivery.headers)

    assert type(error.value).__name__ == "BodyConsumed"


def test_callbacks_are_verified_and_read(outlast: Outlast) -> None:
    body = json.dumps({"id": "1", "queue": "mail", "status": "succeeded", "replays": 0, "result": 1, "error": None}).encode()
    genuine = sign_delivery(SECRET, body)

    assert parse_callback(SECRET, genuine.headers, genuine.body)["status"] == "succeeded"
    with pytest.raises(BadSignature):
        parse_callback(SECRET, genuine.headers, body + b" ")
    delivery = sign_delivery(SECRET, None)
    with pytest.raises(Exception, match="not a callback"):
        parse_callback(SECRET, delivery.headers, delivery.body)


def test_our_signatures_are_those_of_the_standard() -> None:
    library = standardwebhooks.Webhook(SECRET)
    now = datetime.now(timezone.utc)
    for body in ("{}", '{"a": "Gezeiten – ☂"}', "x" * 10_000):
        stamp = str(int(now.timestamp()))
        ours = signature(SECRET, "msg_1", stamp, body.encode())
        assert ours == library.sign("msg_1", now, body)
        headers = {"webhook-id": "msg_1", "webhook-timestamp": stamp, "webhook-signature": ours}
        verify(SECRET, headers, body)
        verify(SECRET, {name.title(): value for name, value in headers.items()}, body.encode())


def test_the_library_accepts_deliveries_of_our_helper() -> None:
    delivery = sign_delivery(SECRET, {"n": 1})

    found = standardwebhooks.Webhook(SECRET).verify(delivery.body, delivery.headers)

    assert found["payload"] == {"n": 1}


def test_a_webhook_without_a_key_or_a_secret_is_refused_at_start(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTLAST_KEY", raising=False)
    with pytest.raises(ValueError, match="OUTLAST_KEY"):
        webhook(handle, secret=SECRET, outlast=Outlast(server.url))
    with pytest.raises(ValueError, match="secret"):
        webhook(handle, secret="", outlast=Outlast(server.url, key=server.key))
