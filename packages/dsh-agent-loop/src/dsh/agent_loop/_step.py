"""One step: a model request, its reply, and the tools the reply asks for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio.lowlevel

from dsh.agent.events import StepResult
from dsh.agent.loopkit import CUT_OFF, LoggedCall, without_calls
from dsh.agent_loop._tool_batch import ToolBatch
from dsh.llm import (
    BlockAssembler,
    CancelSignal,
    FinishReason,
    LlmCallConfig,
    LlmError,
    Message,
    TokenUsage,
    ToolCallBlock,
)
from dsh.session import APPEND, AssistantChunk, AssistantMessage

if TYPE_CHECKING:
    from dsh.agent_loop._agent import LoopAgent

_CHUNKS_PER_TURN = 64
"""Chunks after which other tasks get a turn, for adapters that never wait."""


class RequestFailed(Exception):
    """The model request ended with a failure that may be retried."""

    def __init__(self, finish: FinishReason, config: LlmCallConfig) -> None:
        super().__init__(finish.message)
        self.finish = finish
        self.config = config

    def error(self) -> LlmError:
        """Return the error to report."""
        return LlmError.from_finish(self.finish)


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What a step that did not fail came to."""

    finish: FinishReason
    usage: TokenUsage | None
    had_tool_calls: bool


class StepWork:
    """The body of an open step. `finish` brings its records in order, whatever happened."""

    def __init__(self, agent: LoopAgent, turn: int, step: int, signal: CancelSignal) -> None:
        self._agent = agent
        self._turn = turn
        self._step = step
        self._signal = signal
        self._assembler = BlockAssembler()
        self._seqs: list[int] = []
        self._streaming = False
        """Whether the reply is under way: what is visible of one cut off is kept."""
        self._batch: ToolBatch | None = None

    async def run(self, call: LoggedCall) -> StepOutcome:
        """Make the request, log the reply, run its tools.

        Raises:
            TurnInterrupted: The signal fired.
            RequestFailed: The stream ended with a failure.
            Exception: A listener, a validator or the log refused something.
        """
        await self._stream(call)
        finish = self._assembler.finish
        if finish.failed:
            raise RequestFailed(finish, call.request.config)
        message = await self._reply(finish)
        self._log_reply(message)
        if self._batch is not None:
            await self._batch.run()
            self._agent.notes.release()
        return StepOutcome(finish, self._assembler.usage, self._batch is not None)

    def finish(self, fail: Callable[[Exception], object]) -> None:
        """Keep what was visible of a reply cut off, answer open calls, log held-back context.

        Synchronous, raises nothing, and does nothing after a step that ended well.

        Args:
            fail: Takes what the log refuses.
        """
        try:
            if self._streaming and self._agent.cause is not None:
                self._keep_visible_part()
        except Exception as error:  # noqa: BLE001 - the step is being closed
            fail(error)
        if self._batch is not None:
            self._batch.finish(fail)
        try:
            self._agent.notes.release()
        except Exception as error:  # noqa: BLE001 - the step is being closed
            fail(error)

    # --- the stream -------------------------------------------------------------------------

    async def _stream(self, call: LoggedCall) -> None:
        """Log and assemble the reply chunk by chunk, until it ends or the signal fires."""
        append, push, seqs = self._agent.session.append, self._assembler.push, self._seqs
        turn, step, signal = self._turn, self._step, self._signal
        # while the log was made durable
        self._agent.check_interrupted()
        self._streaming = True
        async with aclosing(call.stream()) as chunks:
            # one scope around the whole loop: an adapter that ignores the signal is left, too
            with signal.cancel_scope():
                async for chunk in chunks:
                    if signal.aborted:
                        break
                    seqs.append(append(AssistantChunk(turn, step, chunk)).seq)
                    push(chunk)
                    if len(seqs) % _CHUNKS_PER_TURN == 0:
                        await anyio.lowlevel.checkpoint()
        self._agent.check_interrupted()
        self._streaming = False

    def _keep_visible_part(self) -> None:
        self._streaming = False
        visible = self._assembler.interrupted_blocks()
        usage = self._assembler.usage
        if visible or usage is not None:
            data = AssistantMessage(self._turn, self._step, visible, usage, interrupted=True)
            self._agent.session.append(data, APPEND, self._seqs)

    # --- the reply --------------------------------------------------------------------------

    async def _reply(self, finish: FinishReason) -> Message:
        """Return the reply as it is logged: rewritten, cut where it may be incomplete, paired."""
        message = self._assembler.message()
        cut = finish.kind in CUT_OFF
        if cut:
            message = without_calls(message)
        event = StepResult(self._agent, self._turn, self._step, message)
        message = await self._agent.policies.reply(event)
        if cut:
            return without_calls(message)
        return self._agent.call_ids.mend(message, self._turn, self._step)

    def _log_reply(self, message: Message) -> None:
        usage = self._assembler.usage
        if not message.content and usage is None:
            return
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if calls:
            # before the append: an observer of the reply may already inject
            self._agent.notes.hold()
        data = AssistantMessage(
            self._turn, self._step, tuple(message.content), usage, replay=message.replay
        )
        seq = self._agent.session.seq
        try:
            self._agent.session.append(data, APPEND, self._seqs)
        finally:
            # whatever is in the log has to be answered, also if telling about it was vetoed
            if calls and self._agent.session.seq > seq:
                self._batch = ToolBatch(self._agent, self._turn, self._step, self._signal, calls)
