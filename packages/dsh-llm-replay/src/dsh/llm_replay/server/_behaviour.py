"""What the server does with one request: a status, headers and a list of steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from dsh.llm_replay.server._gate import Gate

WRITE_LIMIT: Final = 65536
"""Neighbouring sends are joined into writes of at most this many bytes."""

EVENT_STREAM: Final = "text/event-stream; charset=utf-8"
"""The content type of a stream."""

End: TypeAlias = Literal["complete", "truncate", "reset"]
"""How a response ends.

`complete` finishes the HTTP body, `truncate` closes the connection in the middle of the body,
`reset` makes the kernel send a TCP reset.
"""


@dataclass(frozen=True, slots=True)
class Send:
    """Write bytes of the body."""

    data: bytes
    """The bytes, without any HTTP framing."""
    chunks: int = 0
    """How many stream payloads the bytes hold; added to `Attempt.chunks_sent`."""
    alone: bool = False
    """Keep these bytes in a write and in an HTTP chunk of their own."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Pause for a number of seconds."""

    seconds: float
    """How long to pause."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Stop at a gate until it is opened."""

    gate: Gate
    """The gate; a test opens it."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Send nothing more and wait until the client gives up."""


Step: TypeAlias = Send | Wait | Hold | Stall
"""One action while a response is written."""


@dataclass(frozen=True)
class Behaviour:
    """One scripted answer.

    A behaviour is a value: it can be used for many requests and the methods return changed copies.
    Steps before the head (`before`) run while the client has seen nothing yet.
    """

    name: str
    """The name that records show."""
    steps: tuple[Step, ...] = ()
    """The body, in order."""
    status: int = 200
    """The HTTP status; 0 means that no response is sent at all."""
    headers: tuple[tuple[str, str], ...] = (("content-type", EVENT_STREAM),)
    """Response headers, without framing headers."""
    end: End = "complete"
    """How the response ends after the last step."""
    sized: bool = False
    """Frame the body with `content-length` instead of chunked coding; needs a body of sends."""
    before: tuple[Step, ...] = ()
    """Steps before the head is written; sends are not allowed here."""

    def __post_init__(self) -> None:
        if any(isinstance(step, Send) for step in self.before):
            raise ValueError(f"behaviour {self.name!r}: nothing can be sent before the head")
        if self.sized and not all(isinstance(step, Send) for step in self.steps):
            raise ValueError(f"behaviour {self.name!r}: a sized body consists of sends only")

    @cached_property
    def writes(self) -> tuple[Step, ...]:
        """The steps with neighbouring sends joined into few big writes, computed once."""
        return tuple(_joined(self.steps))

    @cached_property
    def body(self) -> bytes:
        """All bytes of the body, joined."""
        return b"".join(step.data for step in self.steps if isinstance(step, Send))

    @cached_property
    def is_instant(self) -> bool:
        """Whether no step waits for anything."""
        return all(isinstance(step, Send) for step in (*self.before, *self.steps))

    def named(self, name: str) -> Behaviour:
        """Return a copy under another name."""
        return replace(self, name=name)

    def with_headers(self, **headers: str) -> Behaviour:
        """Return a copy with more response headers; underscores in names become hyphens."""
        extra = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        names = {name for name, _ in extra}
        kept = tuple(item for item in self.headers if item[0] not in names)
        return replace(self, headers=kept + extra)

    def hold(self, gate: Gate, *, after: int = 1) -> Behaviour:
        """Return a copy that stops at `gate` once `after` stream payloads were written."""
        return self._insert(Hold(gate), after)

    def hold_before(self, gate: Gate) -> Behaviour:
        """Return a copy that stops at `gate` before anything, even the status line, is sent."""
        return replace(self, before=(*self.before, Hold(gate)))

    def delayed(self, seconds: float) -> Behaviour:
        """Return a copy that waits before the status line is sent."""
        return replace(self, before=(*self.before, Wait(seconds)))

    def paced(self, seconds: float) -> Behaviour:
        """Return a copy that waits before every stream payload but the first."""
        steps: list[Step] = []
        started = False
        for step in self.steps:
            if isinstance(step, Send) and step.chunks:
                if started:
                    steps.append(Wait(seconds))
                started = True
            steps.append(step)
        return replace(self, steps=tuple(steps))

    def stalled(self, *, after: int) -> Behaviour:
        """Return a copy that falls silent once `after` stream payloads were written."""
        return replace(self._cut(after), steps=(*self._cut(after).steps, Stall()))

    def cut(self, *, after: int, end: End = "complete") -> Behaviour:
        """Return a copy that ends once `after` stream payloads were written.

        Args:
            after: The number of payloads that are still sent.
            end: How the response ends there.
        """
        return replace(self._cut(after), end=end)

    def cut_bytes(self, count: int, *, end: End = "complete") -> Behaviour:
        """Return a copy that ends after `count` bytes of the body, wherever that is."""
        steps: list[Step] = []
        for step in self.steps:
            if not isinstance(step, Send):
                steps.append(step)
                continue
            if len(step.data) > count:
                steps.append(Send(step.data[:count], 0, step.alone))
                break
            count -= len(step.data)
            steps.append(step)
        return replace(self, steps=tuple(steps), end=end)

    def split(self, size: int = 1) -> Behaviour:
        """Return a copy whose body arrives in pieces of `size` bytes.

        Every piece is a write and an HTTP chunk of its own, so the pieces also cut UTF-8 sequences
        and line ends and reach an HTTP client separately.
        """
        if size < 1:
            raise ValueError(f"size must be at least 1, not {size}")
        return self._map(lambda step: _split(step, size))

    def split_at(self, *offsets: int) -> Behaviour:
        """Return a copy whose body arrives in pieces that end at these byte offsets.

        Raises:
            ValueError: If the behaviour waits somewhere; offsets count the bytes of plain sends.
        """
        if not self.is_instant:
            raise ValueError(f"behaviour {self.name!r} waits and cannot be split at offsets")
        bounds = [0, *sorted(offsets), len(self.body)]
        total = sum(step.chunks for step in self.steps if isinstance(step, Send))
        cuts = [self.body[a:b] for a, b in pairwise(bounds) if b > a]
        steps = [
            Send(data, total if number == len(cuts) else 0, alone=True)
            for number, data in enumerate(cuts, 1)
        ]
        return replace(self, steps=tuple(steps))

    def transformed(self, change: Callable[[bytes], bytes]) -> Behaviour:
        """Return a copy with a function applied to the bytes of every send."""
        return self._map(lambda step: [replace(step, data=change(step.data))])

    def prefixed(self, data: bytes) -> Behaviour:
        """Return a copy that sends these bytes first."""
        return replace(self, steps=(Send(data), *self.steps))

    def _map(self, change: Callable[[Send], Iterable[Step]]) -> Behaviour:
        steps: list[Step] = []
        for step in self.steps:
            steps.extend(change(step) if isinstance(step, Send) else (step,))
        return replace(self, steps=tuple(steps))

    def _index(self, after: int) -> int:
        """Return the index of the first step behind `after` payloads."""
        if after < 1:
            return 0
        seen = 0
        for index, step in enumerate(self.steps):
            if isinstance(step, Send):
                seen += step.chunks
                if seen >= after:
                    return index + 1
        raise ValueError(f"behaviour {self.name!r} has only {seen} stream payloads, not {after}")

    def _cut(self, after: int) -> Behaviour:
        return replace(self, steps=self.steps[: self._index(after)])

    def _insert(self, step: Step, after: int) -> Behaviour:
        index = self._index(after)
        return replace(self, steps=(*self.steps[:index], step, *self.steps[index:]))


def _split(step: Send, size: int) -> Iterator[Send]:
    starts = range(0, len(step.data), size)
    for start in starts:
        last = start + size >= len(step.data)
        yield Send(step.data[start : start + size], step.chunks if last else 0, alone=True)


def _joined(steps: Iterable[Step]) -> Iterator[Step]:
    pending: list[Send] = []
    size = 0
    for step in steps:
        joinable = isinstance(step, Send) and not step.alone
        length = len(step.data) if isinstance(step, Send) else 0
        if pending and (not joinable or size + length > WRITE_LIMIT):
            yield _join(pending)
            pending, size = [], 0
        if isinstance(step, Send) and joinable:
            pending.append(step)
            size += length
        else:
            yield step
    if pending:
        yield _join(pending)


def _join(sends: Iterable[Send]) -> Send:
    parts = tuple(sends)
    return Send(b"".join(part.data for part in parts), sum(part.chunks for part in parts))
