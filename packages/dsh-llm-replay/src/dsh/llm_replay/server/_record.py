"""What the server remembers of a request and of its answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

import anyio

Outcome: TypeAlias = Literal[
    "active", "completed", "client-aborted", "truncated", "reset", "server-stopped"
]
"""How an attempt ended, seen from the server; `active` while it runs."""


@dataclass(frozen=True, slots=True)
class WireRequest:
    """An accepted request, as a behaviour function sees it."""

    number: int
    """1 for the first accepted request of the server."""
    path: str
    """The request target, query included."""
    headers: Mapping[str, str]
    """Header names in lower case; the last value wins."""
    body: Mapping[str, Any]
    """The parsed JSON body."""

    @property
    def model(self) -> str:
        """The `model` field, empty if absent."""
        return str(self.body.get("model", ""))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The wire messages, an empty list if the field is missing or of another type."""
        messages = self.body.get("messages")
        return cast("list[dict[str, Any]]", messages) if isinstance(messages, list) else []

    @property
    def last_text(self) -> str:
        """The content of the last message, of whatever role; empty if it is not a string."""
        content = self.messages[-1].get("content") if self.messages else None
        return content if isinstance(content, str) else ""

    @property
    def tool_results(self) -> list[str]:
        """The contents of the tool messages behind the last assistant message."""
        results: list[str] = []
        for message in reversed(self.messages):
            if message.get("role") != "tool":
                break
            results.append(str(message.get("content", "")))
        return results[::-1]


@dataclass(eq=False, slots=True)
class Attempt:
    """One accepted request and what became of it."""

    request: WireRequest
    """The request."""
    connection: int
    """Number of the TCP connection, from 1; equal numbers mean that it was reused."""
    scripted: str
    """Name of the script entry."""
    behaviour: str
    """Name of the behaviour that served it; differs from `scripted` for random entries."""
    status: int
    """The HTTP status that was scripted, 0 if none is sent."""
    started_at: float
    """Clock of the event loop, in seconds, when the request had been read."""
    finished_at: float | None = None
    """Clock of the event loop when the attempt ended."""
    chunks_sent: int = 0
    """Stream payloads handed to the kernel, `[DONE]` and comments not counted."""
    bytes_sent: int = 0
    """Body bytes handed to the kernel, without HTTP framing."""
    outcome: Outcome = "active"
    """How it ended."""
    client_disconnected: bool = False
    """Whether the client was gone before the response was complete."""
    on_finished: Callable[[Attempt], None] | None = field(default=None, repr=False)
    """Called once when the attempt has ended."""
    _done: anyio.Event = field(default_factory=anyio.Event, repr=False)

    @property
    def number(self) -> int:
        """1 for the first accepted request of the server."""
        return self.request.number

    @property
    def body(self) -> Mapping[str, Any]:
        """The parsed JSON body of the request."""
        return self.request.body

    @property
    def headers(self) -> Mapping[str, str]:
        """The request headers, names in lower case."""
        return self.request.headers

    async def finished(self) -> Outcome:
        """Wait until the attempt has ended and return how."""
        await self._done.wait()
        return self.outcome

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome, once; called by the server."""
        if self.outcome == "active":
            self.outcome = outcome
            self.client_disconnected = outcome == "client-aborted"
            self.finished_at = anyio.current_time()
            self._done.set()
            if self.on_finished is not None:
                self.on_finished(self)

    def as_json(self) -> dict[str, Any]:
        """Return the record as JSON values, credentials left out."""
        headers = {k: v for k, v in self.headers.items() if k != "authorization"}
        return {
            "number": self.number,
            "connection": self.connection,
            "path": self.request.path,
            "headers": headers,
            "body": dict(self.body),
            "scripted": self.scripted,
            "behaviour": self.behaviour,
            "status": self.status,
            "chunksSent": self.chunks_sent,
            "bytesSent": self.bytes_sent,
            "outcome": self.outcome,
            "clientDisconnected": self.client_disconnected,
        }


@dataclass(frozen=True, slots=True)
class Rejection:
    """A request that did not consume the script."""

    method: str
    """The HTTP method."""
    path: str
    """The request target, query included."""
    status: int
    """405, 404, 401 or 400."""
    reason: str
    """Why, in words."""
