"""When a request is sent again. Every plan sends through `exchange`, so the rules are in one place.

Sent again: no answer, 500 without a code, 502 and 504 without a code, if the request may be repeated; and 429, 503, 507,
which are definite, after Retry-After.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from ..errors import InDoubt, OutlastError, Unavailable
from .problems import problem, refusal, retry_after
from .steps import Answer, NoAnswer, Open, Plan, Request, Send, Sleep

TRIES = 4
DELAY_MIN = 0.1
DELAY_MAX = 5.0
# A server that asks for more than this is not waited for.
RETRY_AFTER_MAX = 30.0


@dataclass
class Tries:
    """How often one call is sent. `go_on` replaces the count, for reports that are repeated as long as their lease lasts."""

    limit: int = TRIES
    go_on: Callable[[], bool] | None = None
    # Set by `exchange`: an earlier try may have had its effect.
    in_doubt: bool = False
    made: int = 0

    def may_repeat(self) -> bool:
        if self.go_on is not None:
            return self.go_on()
        return self.made < self.limit


def backoff(tries_made: int) -> float:
    """A jittered wait before the next try, from 0.1 s doubling to 5 s."""
    longest = min(DELAY_MAX, DELAY_MIN * 2 ** min(tries_made, 10))
    return random.uniform(DELAY_MIN, max(longest, DELAY_MIN))


def exchange(request: Request, tries: Tries | None = None, *, opened: bool = False) -> Plan[Answer]:
    """Sends until there is an answer that counts: 2xx and 3xx are returned, anything else is raised."""
    tries = tries or Tries()
    while True:
        tries.made += 1
        try:
            answer: Answer = yield (Open(request) if opened else Send(request))
        except NoAnswer as failure:
            tries.in_doubt = tries.in_doubt or failure.sent
            if not (request.repeatable or not failure.sent) or not tries.may_repeat():
                raise _unanswered(request, failure, tries) from failure
            yield Sleep(backoff(tries.made))
            continue
        if answer.status < 400:
            return answer
        pause = _pause(answer, request, tries)
        if pause is None:
            raise _refused(request, answer, tries)
        yield Sleep(pause)


def _pause(answer: Answer, request: Request, tries: Tries) -> float | None:
    """How long to wait before the next try; None where there is none."""
    code = problem(answer).get("code")
    if answer.status in (429, 503, 507):
        after = retry_after(answer.headers)
        if not tries.may_repeat() or (after or 0) > RETRY_AFTER_MAX:
            return None
        return backoff(tries.made) if after is None else after + random.uniform(0, DELAY_MIN)
    if answer.status in (500, 502, 504) and code is None:
        tries.in_doubt = True
        if request.repeatable and tries.may_repeat():
            return backoff(tries.made)
    return None


def _refused(request: Request, answer: Answer, tries: Tries) -> OutlastError:
    if answer.status >= 500 and problem(answer).get("code") is None and answer.status not in (503, 507):
        return InDoubt(f"{request.method} {request.path}: the server answered {answer.status} without a code; it may be stored")
    refused = refusal(answer)
    if tries.in_doubt and isinstance(refused, Unavailable):
        # The last answer is definite, an earlier try is not.
        return InDoubt(f"{request.method} {request.path}: no answer came at first, then {refused}; it may be stored")
    return refused


def _unanswered(request: Request, failure: NoAnswer, tries: Tries) -> OutlastError:
    if not tries.in_doubt:
        return Unavailable(f"{request.method} {request.path}: {failure}; nothing was sent")
    return InDoubt(f"{request.method} {request.path}: {failure}; it may be stored")
