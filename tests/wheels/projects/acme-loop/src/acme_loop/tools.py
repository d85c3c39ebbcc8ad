"""The tool calls of one reply, run strictly one after another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from dsh.agent.loopkit import UNKNOWN, context_message, is_fatal, leaf_of, text_of_error
from dsh.llm import TextBlock, ToolCallBlock
from dsh.session import APPEND, ToolCall, ToolResult, synthetic_tool_result
from dsh.tools import PendingCall, ToolCallInput, parse_arguments

if TYPE_CHECKING:
    from acme_loop.step import Step


@dataclass(slots=True)
class Call:
    """A call and how far it has come."""

    block: ToolCallBlock
    seq: int | None = None
    """Where its `tool/call` is."""
    pending: PendingCall | None = None
    started: bool = False
    """Whether its body may have begun."""


class Batch:
    """Runs calls, and answers every one of them whatever happens."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._turn = step.turn
        self._calls: deque[Call] = deque()

    async def run(self, blocks: Iterable[ToolCallBlock]) -> None:
        """Run the calls, until somebody stops the turn; a step that wraps up runs none."""
        self._calls.extend(Call(block) for block in blocks)
        while self._calls and not self._turn.stopped and not self._step.wraps_up:
            call, block = self._calls[0], self._calls[0].block
            data = ToolCall(*self._step.number, block.id, block.name, block.arguments)
            call.seq = self._step.session.append(data).seq
            await self._execute(call)
            self._answer()

    def finish(self) -> None:
        """Answer what is left and log what was held back; never raises."""
        while self._calls:
            try:
                self._answer()
            except Exception as error:
                self._turn.fail(error)
        try:
            self._step.agent.notes.release()
        except Exception as error:
            self._turn.fail(error)

    async def _execute(self, call: Call) -> None:
        """Run a call in a task of its own, which is left behind when it ignores a stop."""
        driver, block = self._step.driver, call.block
        arguments = parse_arguments(block.arguments)
        wanted = ToolCallInput(
            block.id, block.name, arguments, self._step.agent, signal=self._turn.signal
        )
        done = anyio.Event()
        body = anyio.CancelScope(shield=True)

        async def work() -> None:
            try:
                with body:
                    call.pending = await driver.loop.tools.begin(wanted)
                    await driver.checkpoints.before_tools([call.pending], self._turn.signal)
                    if not self._turn.signal.aborted:
                        call.started = not call.pending.refused
                        await call.pending.run()
            except BaseException as error:
                if is_fatal(error) or call.pending is None:
                    raise
                call.pending.abandon(f"Error: {text_of_error(leaf_of(error))}", UNKNOWN)
            finally:
                done.set()

        driver.tasks.start_soon(work)
        with self._turn.signal.cancel_scope(driver.loop.config.cancel_grace_s):
            await done.wait()
        body.cancel()

    def _answer(self) -> None:
        """Log the result of the first call, or what stands in for it.

        Raises:
            Exception: The log refused the result, so something stands in for it.
        """
        call = self._calls.popleft()
        number, block, pending = self._step.number, call.block, call.pending
        result = None if pending is None else pending.result
        refusal: Exception | None = None
        if result is not None:
            data = ToolResult(
                *number, block.id, result.content, result.is_error, result.error, result.meta
            )
            try:
                self._append(data, call.seq)
            except Exception as error:
                refusal = error
            for context in result.additional_context:
                self._step.agent.notes.park(context_message(context))
        if result is None or refusal is not None:
            stand_in = synthetic_tool_result(*number, block.id, started=call.started)
            if pending is not None and stand_in.error is not None:
                (text,) = stand_in.content
                assert isinstance(text, TextBlock)
                pending.abandon(text.text, stand_in.error.code)
            self._append(stand_in, call.seq)
        if refusal is not None:
            raise refusal

    def _append(self, result: ToolResult, seq: int | None) -> None:
        self._step.session.append(result, APPEND, None if seq is None else (seq,))
