"""The record of one model call."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import anyio

from dsh.llm import LlmRequest

CallOutcome: TypeAlias = Literal["active", "completed", "raised", "aborted", "closed"]
"""How a call ended; `closed` means that the consumer stopped reading before the end."""


@dataclass(eq=False, slots=True)
class ModelCall:
    """One call of the model and what became of it."""

    number: int
    """1 for the first call of the adapter."""
    request: LlmRequest
    """What was asked."""
    chunks_sent: int = 0
    """How many chunks were handed to the consumer."""
    outcome: CallOutcome = "active"
    """How it ended."""
    error: Exception | None = None
    """What was raised, if something was."""
    _started: anyio.Event = field(default_factory=anyio.Event, repr=False)
    _waiting: anyio.Event = field(default_factory=anyio.Event, repr=False)
    _finished: anyio.Event = field(default_factory=anyio.Event, repr=False)

    async def started(self) -> None:
        """Wait until the consumer has dealt with the first chunk, or the call has ended."""
        await self._started.wait()

    async def waiting(self) -> None:
        """Wait until the call hangs or stands at a gate, all chunks before it consumed."""
        await self._waiting.wait()

    async def finished(self) -> CallOutcome:
        """Wait until the call has ended and return how."""
        await self._finished.wait()
        return self.outcome

    def note_started(self) -> None:
        """Note that the consumer came back for more; called by the adapter."""
        self._started.set()

    def note_waiting(self) -> None:
        """Note that the call now waits; called by the adapter."""
        self._started.set()
        self._waiting.set()

    def finish(self, outcome: CallOutcome, error: Exception | None = None) -> None:
        """Note the end; called by the adapter."""
        self.outcome = outcome
        self.error = error
        self._started.set()
        self._finished.set()
