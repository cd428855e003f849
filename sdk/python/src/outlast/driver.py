"""Carries plans out with a blocking transport."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from typing import Any, TypeVar

from .core.steps import Close, Emit, NoAnswer, Open, Plan, Read, Send, Sleep, Step
from .transport import Transport

T = TypeVar("T")


def run(plan: Plan[T], transport: Transport, sleep: Callable[[float], None] = time.sleep) -> T:
    """The value that the plan returns."""
    steps = _steps(plan, transport, sleep)
    try:
        while True:
            next(steps)
    except StopIteration as end:
        value: T = end.value
        return value


def iterate(plan: Plan[None], transport: Transport) -> Iterator[Any]:
    """The values that the plan emits."""
    steps = _steps(plan, transport, time.sleep)
    try:
        for step in steps:
            yield step.value
    finally:
        steps.close()


def _steps(plan: Plan[T], transport: Transport, sleep: Callable[[float], None]) -> Generator[Emit, None, T]:
    """Carries out every step but `Emit`, which it yields. Closes what the plan has opened, however it ends."""
    opened: list[Any] = []
    reply: Any = None
    failure: NoAnswer | None = None
    try:
        while True:
            try:
                step = plan.throw(failure) if failure is not None else plan.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply, failure = None, None
            if isinstance(step, Emit):
                yield step
                continue
            try:
                reply = _carry_out(step, transport, sleep, opened)
            except NoAnswer as error:
                failure = error
    finally:
        plan.close()
        for stream in opened:
            transport.close_stream(stream)


def _carry_out(step: Step, transport: Transport, sleep: Callable[[float], None], opened: list[Any]) -> Any:
    if isinstance(step, Send):
        return transport.send(step.request)
    if isinstance(step, Sleep):
        sleep(step.seconds)
        return None
    if isinstance(step, Read):
        return transport.read(step.stream, step.timeout)
    if isinstance(step, Open):
        answer = transport.open(step.request)
        if answer.stream is not None:
            opened.append(answer.stream)
        return answer
    if isinstance(step, Close):
        transport.close_stream(step.stream)
        if step.stream in opened:
            opened.remove(step.stream)
    return None
