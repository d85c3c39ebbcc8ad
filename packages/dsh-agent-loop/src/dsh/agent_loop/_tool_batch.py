"""Running the tool calls of one reply."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import anyio

from dsh.agent.loopkit import UNKNOWN, context_message, is_fatal, leaf_of, text_of_error
from dsh.llm import CancelSignal, ContentBlock, TextBlock, ToolCallBlock
from dsh.session import APPEND, ToolCall, ToolResult, synthetic_tool_result
from dsh.tools import PendingCall, ToolCallInput, parse_arguments

if TYPE_CHECKING:
    from dsh.agent_loop._agent import LoopAgent


class CallState:
    """One tool call of the reply and how far it has come."""

    __slots__ = ("answered", "block", "input", "pending", "refused", "seq", "started")

    def __init__(self, block: ToolCallBlock, agent: LoopAgent, signal: CancelSignal) -> None:
        self.block = block
        self.input = ToolCallInput(
            call_id=block.id,
            name=block.name,
            arguments=parse_arguments(block.arguments),
            agent=agent,
            signal=signal,
        )
        """What the registry is asked about."""
        self.seq: int | None = None
        """Sequence number of its `tool/call`."""
        self.pending: PendingCall | None = None
        """The call between its two halves, once policies are through with it."""
        self.started = False
        """Whether its body may have begun."""
        self.refused = False
        """Whether the log refused its result."""
        self.answered = False
        """Whether its `tool/result` is in the log."""


class ToolBatch:
    """The calls of one reply, answered in their order whatever happens.

    Consecutive calls that may overlap form a group: they are logged and admitted one by one,
    their bodies run together, their results are logged in call order.
    """

    __slots__ = ("_agent", "_calls", "_signal", "_step", "_turn")

    def __init__(
        self,
        agent: LoopAgent,
        turn: int,
        step: int,
        signal: CancelSignal,
        blocks: Iterable[ToolCallBlock],
    ) -> None:
        self._agent = agent
        self._turn = turn
        self._step = step
        self._signal = signal
        self._calls = [CallState(block, agent, signal) for block in blocks]

    async def run(self) -> None:
        """Run every call.

        Raises:
            TurnInterrupted: The signal fired; `finish` answers what is left.
            Exception: The log refused a call or a result.
        """
        waiting = deque(self._calls)
        while waiting:
            group = self._next_group(waiting)
            await self._run_group(group)
            for call in group:
                self._commit(call)
        self._agent.check_interrupted()

    def finish(self, fail: Callable[[Exception], object]) -> None:
        """Answer every call that has no result yet; synchronous and never raises.

        Args:
            fail: Takes what the log refuses.
        """
        for call in self._calls:
            if call.answered:
                continue
            try:
                self._commit(call)
            except Exception as error:  # noqa: BLE001 - a stand-in result is logged instead
                fail(error)
            if not call.answered:
                self._stand_in(call)

    # --- which calls run together -----------------------------------------------------------

    def _next_group(self, waiting: deque[CallState]) -> list[CallState]:
        group = [waiting.popleft()]
        if self._overlaps(group[0]):
            limit = self._agent.loop.config.max_parallel_tools
            while waiting and len(group) < limit and self._overlaps(waiting[0]):
                group.append(waiting.popleft())
        return group

    def _overlaps(self, call: CallState) -> bool:
        return self._agent.loop.tools.concurrent(call.input)

    # --- running ----------------------------------------------------------------------------

    async def _run_group(self, group: list[CallState]) -> None:
        for call in group:
            self._agent.check_interrupted()
            await self._begin(call)
        self._agent.check_interrupted()
        await self._checkpoint(group)
        if len(group) == 1:
            await self._body(group[0])
            return
        async with anyio.create_task_group() as bodies:
            for call in group:
                bodies.start_soon(self._body, call)

    async def _begin(self, call: CallState) -> None:
        """Log the call and let policies look at it."""
        block = call.block
        data = ToolCall(self._turn, self._step, block.id, block.name, block.arguments)
        call.seq = self._agent.session.append(data).seq
        with self._bounded():
            call.pending = await self._agent.loop.tools.begin(call.input)

    async def _checkpoint(self, group: Iterable[CallState]) -> None:
        """Let no body begin before the log that tells of it is durable."""
        pending = [call.pending for call in group if call.pending is not None]
        await self._agent.checkpoints.before_tools(pending, self._signal)
        self._agent.check_interrupted()

    async def _body(self, call: CallState) -> None:
        if call.pending is None:
            return
        call.started = not call.pending.refused
        try:
            with self._bounded():
                await call.pending.run(notify=False)
        except BaseException as error:
            if is_fatal(error):
                raise
            # the pipeline contains exceptions; this is something else, such as a test's own exit
            call.pending.abandon(f"Error: {text_of_error(leaf_of(error))}", UNKNOWN, notify=False)

    def _bounded(self) -> AbstractContextManager[anyio.CancelScope]:
        """Await a stage of a call, for no longer than the grace once the signal has fired."""
        return self._signal.cancel_scope(self._agent.loop.config.cancel_grace_s)

    # --- answering --------------------------------------------------------------------------

    def _commit(self, call: CallState) -> None:
        """Tell observers what a call came to, log it, and keep the context that came with it."""
        pending = call.pending
        result = None if pending is None or call.refused else pending.result
        if pending is None or result is None:
            self._stand_in(call)
            return
        pending.notify()
        self._append(
            call,
            ToolResult(
                turn=self._turn,
                step=self._step,
                call_id=call.block.id,
                content=result.content,
                is_error=result.is_error,
                error=result.error,
                meta=result.meta,
            ),
        )
        for context in result.additional_context:
            self._agent.notes.park(context_message(context))

    def _stand_in(self, call: CallState) -> None:
        """Answer a call that gave no result; the log always accepts this."""
        data = synthetic_tool_result(self._turn, self._step, call.block.id, started=call.started)
        if call.pending is not None and data.error is not None:
            call.pending.abandon(text_of(data.content), data.error.code)
        self._append(call, data)

    def _append(self, call: CallState, data: ToolResult) -> None:
        session = self._agent.session
        seq = session.seq
        try:
            session.append(data, APPEND, None if call.seq is None else (call.seq,))
        finally:
            # an event may be in the log although telling about it was vetoed
            call.answered = session.seq > seq
            call.refused = not call.answered


def text_of(content: tuple[ContentBlock, ...]) -> str:
    """Return the text of a stand-in result."""
    return "".join(block.text for block in content if isinstance(block, TextBlock))
