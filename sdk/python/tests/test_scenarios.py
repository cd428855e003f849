"""Runs sdk/scenarios.yaml with the blocking and the async client. The file explains its format."""

import asyncio
import json
import re
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import yaml
from conftest import ROOT
from proxy import Fault, Proxy, Recorded

import outlast as package
from outlast import AsyncOutlast, Defer, NotRetryable, Outlast, Refused, Worker, errors, item
from outlast.durations import seconds
from outlast.record import snake
from outlast.testing import Server
from outlast.webhook import verify

FILE = yaml.safe_load((ROOT / "sdk" / "scenarios.yaml").read_text())
ALWAYS_IGNORED = ["GET /livez", "POST /v1/heartbeats", "POST /v1/progress", "POST /v1/receive", "POST /v1/queues/*/receive"]
ABSENT = object()


class Variables:
    """Bound values, and the comparison that binds them."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}

    def fill(self, value: Any) -> Any:
        if isinstance(value, str):
            if value.startswith("$") and value[1:] in self.bound:
                return self.bound[value[1:]]
            return re.sub(r"\$(\w+)", lambda found: str(self.bound.get(found[1], found[0])), value)
        if isinstance(value, dict):
            return {name: self.fill(member) for name, member in value.items()}
        return [self.fill(member) for member in value] if isinstance(value, list) else value

    def match(self, expected: Any, actual: Any, where: str) -> None:
        if expected == "$any":
            assert actual is not ABSENT, f"{where} is missing"
        elif expected == "$absent":
            assert actual is ABSENT, f"{where} is {actual!r} and should be missing"
        elif isinstance(expected, str) and re.fullmatch(r"\$\w+", expected):
            assert actual is not ABSENT, f"{where} is missing"
            assert self.bound.setdefault(expected[1:], actual) == actual, f"{where}: {actual!r} is not {expected}"
        elif isinstance(expected, dict):
            assert isinstance(actual, dict), f"{where}: {actual!r}"
            for name, member in expected.items():
                self.match(member, actual.get(name, ABSENT), f"{where}.{name}")
        elif isinstance(expected, list):
            assert isinstance(actual, list), f"{where}: {actual!r}"
            assert len(actual) == len(expected), f"{where}: {len(actual)} entries for {len(expected)}: {actual!r}"
            for index, (one, other) in enumerate(zip(expected, actual)):
                self.match(one, other, f"{where}[{index}]")
        else:
            assert actual == self.fill(expected), f"{where}: {actual!r} is not {expected!r}"


def is_match(pattern: str, recorded: Recorded, variables: Variables) -> bool:
    method, path = variables.fill(pattern).split(" ", 1)
    expression = "/".join("[^/]+" if part == "*" else re.escape(part) for part in path.split("/"))
    return method == recorded.method and re.fullmatch(expression, recorded.path) is not None


class Faults:
    """Chooses the fault of each request by counting the matches of each entry."""

    def __init__(self, entries: list[dict[str, Any]], variables: Variables) -> None:
        self._entries = [entry for entry in entries if "request" in entry]
        self._counts = [0] * len(self._entries)
        self._variables = variables

    def choose(self, recorded: Recorded) -> Fault | None:
        chosen = None
        for index, entry in enumerate(self._entries):
            if not is_match(entry["request"], recorded, self._variables):
                continue
            self._counts[index] += 1
            nth = entry.get("nth", 1)
            if nth == "all" or self._counts[index] in (nth if isinstance(nth, list) else [nth]):
                chosen = chosen or Fault(answer=entry.get("answer"), drop=entry.get("drop"), cut=entry.get("cut"))
        return chosen


def options_of(call: dict[str, Any], *taken: str) -> dict[str, Any]:
    left = {name: value for name, value in call.items() if name not in ("call", "as", "returns", "raises", *taken)}
    return {snake(name): value for name, value in left.items()}


class Blocking:
    """The calls of the file with the blocking client."""

    def __init__(self, client: Outlast, queue: str) -> None:
        self.client = client
        self.queue = queue

    def publish(self, call: dict[str, Any]) -> Any:
        job = self.client.queue(self.queue).publish(call["payload"], **options_of(call, "payload"))
        return {"id": job.id, "queue": job.queue, "status": job.status, "duplicate": job.duplicate}

    def publishMany(self, call: dict[str, Any]) -> Any:
        items = [item(entry["payload"], **options_of(entry, "payload")) for entry in call["items"]]
        answers = self.client.queue(self.queue).publish_many(items, size=call.get("size", 500))
        return [describe_answer(answer) for answer in answers]

    def get(self, call: dict[str, Any]) -> Any:
        return self.client.jobs.get(call["job"]).data

    def result(self, call: dict[str, Any]) -> Any:
        value = package.Job(self.client, {"id": call["job"], "status": "queued"}).result(call["timeout"])
        return {} if value is None else {"value": value}

    def events(self, call: dict[str, Any]) -> Any:
        job = package.Job(self.client, {"id": call["job"]})
        return [event for event in job.events(timeout=30) if event["type"] != "progress"]

    def list(self, call: dict[str, Any]) -> Any:
        return [job.data for job in self.client.jobs.list(queue=call["queue"], status=call["status"], limit=2)]

    def cancel(self, call: dict[str, Any]) -> Any:
        return package.Job(self.client, {"id": call["job"]}).cancel().data

    def replay(self, call: dict[str, Any]) -> Any:
        return package.Job(self.client, {"id": call["job"]}).replay().data

    def request(self, call: dict[str, Any]) -> Any:
        return self.client.request(call["method"], call["path"], json=call.get("body")).json()


class InLoop(Blocking):
    """The same with the async client, in a loop of its own."""

    def __init__(self, client: Outlast, queue: str, loop: asyncio.AbstractEventLoop, retries: int) -> None:
        super().__init__(client, queue)
        self.loop = loop
        self.aclient = AsyncOutlast(client.url, key=client.key, retries=retries)

    def publish(self, call: dict[str, Any]) -> Any:
        plan = self.aclient.queue(self.queue).publish(call["payload"], **options_of(call, "payload"))
        job = self.loop.run_until_complete(plan)
        return {"id": job.id, "queue": job.queue, "status": job.status, "duplicate": job.duplicate}

    def publishMany(self, call: dict[str, Any]) -> Any:
        async def items() -> AsyncIterator[Any]:
            for entry in call["items"]:
                yield item(entry["payload"], **options_of(entry, "payload"))

        answers = self.loop.run_until_complete(self.aclient.queue(self.queue).publish_many(items(), size=call.get("size", 500)))
        return [describe_answer(answer) for answer in answers]

    def get(self, call: dict[str, Any]) -> Any:
        return self.loop.run_until_complete(self.aclient.jobs.get(call["job"])).data

    def result(self, call: dict[str, Any]) -> Any:
        job = package.AsyncJob(self.aclient, {"id": call["job"], "status": "queued"})
        value = self.loop.run_until_complete(job.result(call["timeout"]))
        return {} if value is None else {"value": value}

    def events(self, call: dict[str, Any]) -> Any:
        async def collect() -> Any:
            job = package.AsyncJob(self.aclient, {"id": call["job"]})
            return [event async for event in job.events(timeout=30) if event["type"] != "progress"]

        return self.loop.run_until_complete(collect())

    def list(self, call: dict[str, Any]) -> Any:
        async def collect() -> Any:
            return [job.data async for job in self.aclient.jobs.list(queue=call["queue"], status=call["status"], limit=2)]

        return self.loop.run_until_complete(collect())

    def cancel(self, call: dict[str, Any]) -> Any:
        return self.loop.run_until_complete(package.AsyncJob(self.aclient, {"id": call["job"]}).cancel()).data

    def replay(self, call: dict[str, Any]) -> Any:
        return self.loop.run_until_complete(package.AsyncJob(self.aclient, {"id": call["job"]}).replay()).data

    def request(self, call: dict[str, Any]) -> Any:
        return self.loop.run_until_complete(self.aclient.request(call["method"], call["path"], json=call.get("body"))).json()


def describe_answer(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Refused):
        return {"class": type(answer).__name__, "code": answer.code}
    return {"id": answer.id, "duplicate": answer.duplicate}


def work(call: dict[str, Any], client: Outlast, direct: Outlast, queue: str, is_async: bool) -> None:
    """Runs a worker until the job has one of the wanted states."""
    worker = Worker(client)
    steps = call["handler"]
    if is_async:
        worker.job(queue)(async_handler(steps))
    else:
        worker.job(queue)(blocking_handler(steps))
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        deadline, is_cancelled = time.monotonic() + 30, False
        while True:
            job = direct.jobs.get(call["job"])
            if job.status in call["until"] and not (job.status == "pending" and job.data["deferCount"] == 0):
                return
            if call.get("cancelWhenRunning") and job.status == "running" and not is_cancelled:
                is_cancelled = True
                job.cancel()
            assert time.monotonic() < deadline, f"the job is {job.status} after 30 s"
            time.sleep(0.02)
    finally:
        worker.stop()
        thread.join(30)


def steps_of(steps: list[dict[str, Any]], attempt: int) -> list[dict[str, Any]]:
    return [step for step in steps if step.get("attempt", attempt) == attempt]


def blocking_handler(steps: list[dict[str, Any]]) -> Any:
    def handle(job: Any) -> Any:
        for step in steps_of(steps, job.attempt):
            if "section" in step:
                job.section(step["section"], lambda name=step["section"]: {"section": name})
            elif "checkpoint" in step:
                job.checkpoint.save(step["checkpoint"]["data"], step["checkpoint"]["schemaVersion"])
            elif "output" in step:
                job.output(step["output"])
            elif "wait" in step:
                assert job.cancelled.wait(25)
            elif "returnSections" in step:
                return job.each_section(step["returnSections"], lambda name: {"section": name})
            elif "returnCheckpoint" in step:
                saved = job.checkpoint.load()
                return {"data": saved.data, "schemaVersion": saved.schema_version}
            else:
                ended, value = simple_step(step, job)
                if ended:
                    return value
        return None

    return handle


def async_handler(steps: list[dict[str, Any]]) -> Any:
    async def value_of(name: str) -> Any:
        return {"section": name}

    async def handle(job: Any) -> Any:
        for step in steps_of(steps, job.attempt):
            if "section" in step:
                await job.section(step["section"], lambda name=step["section"]: value_of(name))
            elif "checkpoint" in step:
                await job.checkpoint.save(step["checkpoint"]["data"], step["checkpoint"]["schemaVersion"])
            elif "output" in step:
                await job.output(step["output"])
            elif "wait" in step:
                try:
                    await asyncio.sleep(25)
                except asyncio.CancelledError:
                    assert job.stop_reason == "cancel"
            elif "returnSections" in step:
                return await job.each_section(step["returnSections"], value_of)
            elif "returnCheckpoint" in step:
                saved = await job.checkpoint.load()
                return {"data": saved.data, "schemaVersion": saved.schema_version}
            else:
                ended, value = simple_step(step, job)
                if ended:
                    return value
        return None

    return handle


def simple_step(step: dict[str, Any], job: Any) -> tuple[bool, Any]:
    """The steps that are the same in both kinds of handlers: whether the handler ends, and with which value."""
    if "progress" in step:
        job.progress(**{snake(name): value for name, value in step["progress"].items()})
    elif "usage" in step:
        job.usage(**step["usage"])
    elif "return" in step:
        return True, step["return"]
    elif "returnNothing" in step:
        return True, None
    elif "returnBig" in step:
        return True, "x" * step["returnBig"]
    elif "throw" in step:
        raise RuntimeError(step["throw"])
    elif "notRetryable" in step:
        raise NotRetryable(step["notRetryable"])
    elif "defer" in step:
        defer = step["defer"]
        raise Defer(defer.get("after"), scope=defer.get("scope", "job"), reason=defer.get("reason"))
    else:
        raise AssertionError(f"unknown step {step}")
    return False, None


def check_error(expected: dict[str, Any], error: BaseException, variables: Variables) -> None:
    assert type(error).__name__ == expected["class"], repr(error)
    for name, value in expected.items():
        if name != "class":
            variables.match(value, getattr(error, snake(name)), f"{expected['class']}.{name}")


def make_calls(scenario: dict[str, Any], caller: Blocking, direct: Outlast, variables: Variables, is_async: bool) -> None:
    for call in scenario["calls"]:
        filled = variables.fill({name: value for name, value in call.items() if name not in ("returns", "raises", "as")})
        if call["call"] == "work":
            work(filled, caller.client, direct, caller.queue, is_async)
            continue
        try:
            returned = getattr(caller, call["call"])(filled)
        except errors.OutlastError as error:
            if "raises" not in call:
                raise
            check_error(call["raises"], error, variables)
            continue
        assert "raises" not in call, f"{call['call']} returned {returned!r}"
        if "as" in call:
            variables.bound[call["as"]] = returned["id"]
        if "returns" in call:
            variables.match(call["returns"], json.loads(json.dumps(returned)), call["call"])


def check_requests(scenario: dict[str, Any], proxy: Proxy, variables: Variables) -> None:
    ignored = ALWAYS_IGNORED + scenario.get("ignore", [])
    seen = [one for one in proxy.requests if not any(is_match(pattern, one, variables) for pattern in ignored)]
    shown = [f"{one.method} {one.path}" for one in seen]
    assert len(seen) == len(scenario["requests"]), shown
    for expected, recorded in zip(scenario["requests"], seen):
        assert is_match(expected["request"], recorded, variables), f"{expected['request']} in {shown}"
        if "body" in expected:
            variables.match(expected["body"], recorded.json(), "body")
        if "headers" in expected:
            variables.match(expected["headers"], recorded.headers, "headers")


@pytest.mark.parametrize("is_async", [False, True], ids=["blocking", "async"])
@pytest.mark.parametrize("scenario", FILE["scenarios"], ids=lambda scenario: scenario["name"])
def test_scenario(scenario: dict[str, Any], is_async: bool, server: Server, outlast: Outlast, request: Any) -> None:
    outlast.stats.health()
    if scenario.get("needs") == "version" and outlast.transport.server_version is None:  # type: ignore[attr-defined]
        pytest.skip("the server sends no x-outlast-version")
    variables = Variables()
    queue = f"scenario-{abs(hash(request.node.name)) % 10**12}"
    outlast.request("POST", "/v1/queues", json={"name": queue, **scenario.get("queue", {})})
    variables.bound["queue"] = queue
    entries = scenario.get("faults", [])
    proxy = Proxy(server.url, Faults(entries, variables).choose)
    if any(entry.get("refuse") for entry in entries):
        proxy.close()
    retries = scenario.get("client", {}).get("retries", 3)
    client = Outlast(proxy.url, key=server.key, retries=retries)
    loop = asyncio.new_event_loop()
    caller = InLoop(client, queue, loop, retries) if is_async else Blocking(client, queue)

    try:
        make_calls(scenario, caller, outlast, variables, is_async)
    finally:
        if isinstance(caller, InLoop):
            loop.run_until_complete(caller.aclient.close())
        loop.close()
        client.close()
        proxy.close()

    if "requests" in scenario:
        check_requests(scenario, proxy, variables)
    if "jobs" in scenario:
        jobs = [outlast.jobs.get(job.id).data for job in outlast.jobs.list(queue=queue)]
        variables.match(scenario["jobs"], jobs[::-1], "jobs")


@pytest.mark.parametrize("case", FILE["durations"], ids=lambda case: repr(case["in"]))
def test_durations(case: dict[str, Any]) -> None:
    if case["seconds"] is None:
        with pytest.raises(ValueError, match="duration"):
            seconds(case["in"])
    else:
        assert seconds(case["in"]) == case["seconds"]


def test_every_code_and_status_has_the_class_of_the_table() -> None:
    for code, name in FILE["errors"].items():
        assert errors.family(code, 400).__name__ == name, code
    for status, name in FILE["statuses"].items():
        assert errors.family(None, status).__name__ == name, status
        assert errors.family("no_such_code", status).__name__ == name, status


@pytest.mark.parametrize("case", FILE["signatures"], ids=lambda case: case["name"])
def test_signatures(case: dict[str, Any]) -> None:
    given = (case["secret"], case["headers"], case["body"].encode())
    if case["genuine"]:
        verify(*given, now=case["now"])
    else:
        with pytest.raises(errors.BadSignature):
            verify(*given, now=case["now"])
