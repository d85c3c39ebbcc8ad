"""Following one turn live."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from dsh.agent._outcome import TurnOutcome
from dsh.agent._pulse import Pulse
from dsh.agent._types import Prompt
from dsh.core import Effect
from dsh.session import MessageSource, SessionEvent, TurnEnd
from dsh.session.events import SessionEventAppended

if TYPE_CHECKING:
    from dsh.agent._agent import Agent
    from dsh.agent._receipt import Receipt

LEAVE_GRACE_S: Final = 30.0
"""Longest wait for an agent to become idle when a block is left early."""


class Run:
    """One prompt under way: an `async with` block and an iterator of the turn's events.

    The log itself is the buffer, so a slow reader loses nothing and holds nothing up.
    """

    def __init__(self, agent: Agent, content: Prompt, source: MessageSource | None) -> None:
        self._agent = agent
        self._content = content
        self._source = source
        self._pulse = Pulse()
        self._listener: Effect | None = None
        self._receipt: Receipt | None = None
        self._seq = 0
        self._ended = False

    @property
    def receipt(self) -> Receipt:
        """The prompt's receipt; there once the block was entered."""
        if self._receipt is None:
            raise RuntimeError("enter the run first: async with agent.run(...) as run")
        return self._receipt

    async def done(self) -> TurnOutcome:
        """Wait until the turn is over and checkpointed; see `Receipt.done`."""
        return await self.receipt.done()

    async def __aenter__(self) -> Self:
        self._listener = self._agent.ctx.on(SessionEventAppended, self._appended)
        try:
            self._receipt = self._agent.send(self._content, self._source)
        except BaseException:
            self._listener.dispose_nowait()
            raise
        self._receipt.follow(self._pulse)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listener is not None
        self._listener.dispose_nowait()
        if self.receipt.settled or self.receipt.withdraw("the run was left"):
            return
        with anyio.move_on_after(LEAVE_GRACE_S, shield=True):
            if self._over:
                await self.receipt.settle()
            else:
                self._agent.cancel("the run was left")
                await self._agent.when_idle()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionEvent:
        # no generator: one that is left half-way would be closed by the garbage collector
        receipt = self.receipt
        events = self._agent.session.events
        while not self._ended:
            if receipt.turn is not None:
                self._seq = max(self._seq, receipt.start)
                if self._seq < len(events):
                    event = events[self._seq]
                    self._seq += 1
                    data = event.data
                    self._ended = isinstance(data, TurnEnd) and data.turn == receipt.turn
                    return event
            if receipt.settled:
                break
            await self._pulse.wait()
        raise StopAsyncIteration

    @property
    def _over(self) -> bool:
        """Whether the turn's end is in the log."""
        turn = self.receipt.turn
        session = self._agent.session
        return turn is not None and (session.turn_open != turn)

    def _appended(self, event: SessionEventAppended) -> None:
        self._pulse.fire()
