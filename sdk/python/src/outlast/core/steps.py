"""The steps that a plan yields, and what a driver gives back for each of them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from ..schema import loads

T = TypeVar("T")


@dataclass
class Request:
    """One HTTP request, without the server's address and key, which the transport adds.

    `body` is bytes, or a readable file whose length is in the header content-length. `url` is set instead of `path` for links
    to another host; a transport never sends the key there.
    """

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None
    # How long this request may wait on purpose, on top of the client's timeout.
    wait: float = 0.0
    # Whether the same request sent twice has the effect of one.
    repeatable: bool = False
    with_key: bool = True
    url: str | None = None


@dataclass
class Answer:
    """An answer that arrived completely; `stream` is set instead of `body` where the plan asked to open one."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    stream: Any = None

    def json(self) -> Any:
        return loads(self.body) if self.body else None


class NoAnswer(Exception):
    """No complete answer came. `sent` is false where the connection could not even be made."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


@dataclass
class Send:
    """Send the request and read its whole answer. The driver throws NoAnswer into the plan on failure."""

    request: Request


@dataclass
class Open:
    """Send the request and read only the head of its answer; the body of a 2xx follows by `Read`."""

    request: Request


@dataclass
class Read:
    """Read the next bytes of an opened answer: empty bytes at its end, NoAnswer where it breaks."""

    stream: Any
    timeout: float


@dataclass
class Close:
    """Give an opened answer up."""

    stream: Any


@dataclass
class Sleep:
    seconds: float


@dataclass
class Emit:
    """Hand one value to the caller that iterates over the plan."""

    value: Any


Step = Union[Send, Open, Read, Close, Sleep, Emit]
Plan = Generator[Step, Any, T]
