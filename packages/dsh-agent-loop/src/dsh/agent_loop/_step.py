"""One step: a model request, its reply, and the tools the reply asks for."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import cast

import anyio
import anyio.lowlevel

from dsh.agent.events import StepResult
from dsh.agent_loop._decisions import no_decision
from dsh.agent_loop._failures import StepAborted
from dsh.agent_loop._notes import Notes
from dsh.agent_loop._request import Call
from dsh.agent_loop._state import AgentState
from dsh.agent_loop._tools import ToolBatch
from dsh.llm import (
    BlockAssembler,
    CancelSignal,
    ContentBlock,
    FinishReason,
    LlmCallConfig,
    LlmError,
    Message,
    TokenUsage,
    ToolCallBlock,
)
from dsh.session import APPEND, AssistantChunk, AssistantMessage

_CUT_OFF = frozenset({"max-tokens", "refusal"})
"""Finishes after which a tool call may be incomplete, so that none of the reply runs."""

_NAME_LENGTH = 64
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{_NAME_LENGTH}}}")
"""Names of tools as chat-completions servers accept them."""

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

    def __init__(
        self, state: AgentState, notes: Notes, turn: int, step: int, signal: CancelSignal
    ) -> None:
        self._state = state
        self._notes = notes
        self._turn = turn
        self._step = step
        self._signal = signal
        self._assembler = BlockAssembler()
        self._seqs: list[int] = []
        self._streaming = False
        self._batch: ToolBatch | None = None

    async def run(self, call: Call) -> StepOutcome:
        """Make the request, log the reply, run its tools.

        Raises:
            StepAborted: The signal fired.
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
            self._notes.release()
        return StepOutcome(finish, self._assembler.usage, self._batch is not None)

    def finish(self, fail: Callable[[Exception], None]) -> None:
        """Keep what was visible of a reply cut off, answer open calls, log held-back context.

        Synchronous, raises nothing, and does nothing after a step that ended well.

        Args:
            fail: Takes what the log refuses.
        """
        try:
            interrupted = self._signal.aborted or self._state.cause is not None
            if self._streaming and interrupted:
                self._keep_visible_part()
        except Exception as error:  # noqa: BLE001 - the step is being closed
            fail(error)
        if self._batch is not None:
            self._batch.finish(fail)
        try:
            self._notes.release()
        except Exception as error:  # noqa: BLE001 - the step is being closed
            fail(error)

    # --- the stream -------------------------------------------------------------------------

    async def _stream(self, call: Call) -> None:
        """Log and assemble the reply chunk by chunk, until it ends or the signal fires."""
        append, push, seqs = self._state.session.append, self._assembler.push, self._seqs
        turn, step, signal = self._turn, self._step, self._signal
        self._streaming = True
        async with aclosing(call.stream(self._state)) as chunks:
            # one scope around the whole loop: an adapter that ignores the signal is left, too
            with anyio.CancelScope() as scope:
                remove = signal.on_abort(scope.cancel)
                try:
                    async for chunk in chunks:
                        if signal.aborted:
                            break
                        seqs.append(append(AssistantChunk(turn, step, chunk)).seq)
                        push(chunk)
                        if len(seqs) % _CHUNKS_PER_TURN == 0:
                            await anyio.lowlevel.checkpoint()
                finally:
                    remove()
        if signal.aborted:
            raise StepAborted
        self._streaming = False

    def _keep_visible_part(self) -> None:
        self._streaming = False
        visible = self._assembler.interrupted_blocks()
        usage = self._assembler.usage
        if visible or usage is not None:
            data = AssistantMessage(self._turn, self._step, visible, usage, interrupted=True)
            self._state.session.append(data, APPEND, self._seqs)

    # --- the reply --------------------------------------------------------------------------

    async def _reply(self, finish: FinishReason) -> Message:
        """Return the reply as it is logged: rewritten, cut where it may be incomplete, paired."""
        message = self._assembler.message()
        cut = finish.kind in _CUT_OFF
        if cut:
            message = _without_calls(message)
        event = StepResult(self._state.agent, self._turn, self._step, message)
        result = cast("object", await self._state.spine.ctx.waterfall(event, _default_result))
        if not isinstance(result, Message) or result.role != "assistant":
            raise no_decision("agent/step-result", result, "an assistant message")
        return _without_calls(result) if cut else self._with_ids(result)

    def _with_ids(self, message: Message) -> Message:
        """Give every call an id no call of the session has had, and a name."""
        used = _used_ids(self._state)
        blocks: list[ContentBlock] = []
        for index, block in enumerate(message.content):
            if isinstance(block, ToolCallBlock):
                call_id = block.id
                if not call_id or call_id in used:
                    call_id = _fresh(f"call_{self._turn}_{self._step}_{index}", used)
                used.add(call_id)
                name = _callable_name(block.name)
                if (call_id, name) != (block.id, block.name):
                    block = ToolCallBlock(call_id, name, block.arguments)
            blocks.append(block)
        content = tuple(blocks)
        return message if content == message.content else replace(message, content=content)

    def _log_reply(self, message: Message) -> None:
        usage = self._assembler.usage
        if not message.content and usage is None:
            return
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if calls:
            # before the append: an observer of the reply may already inject
            self._notes.hold()
        data = AssistantMessage(
            self._turn, self._step, tuple(message.content), usage, replay=message.replay
        )
        seq = self._state.session.seq
        try:
            self._state.session.append(data, APPEND, self._seqs)
        finally:
            # whatever is in the log has to be answered, also if telling about it was vetoed
            if calls and self._state.session.seq > seq:
                self._batch = ToolBatch(
                    self._state, self._notes, self._turn, self._step, self._signal, calls
                )


def _without_calls(message: Message) -> Message:
    kept = tuple(block for block in message.content if not isinstance(block, ToolCallBlock))
    return message if len(kept) == len(message.content) else replace(message, content=kept)


def _callable_name(name: str) -> str:
    """Return a name every provider takes back in the history.

    Models write `functions.bash` and worse; a request that repeats such a name is refused, and
    with it every later one.
    """
    if _NAME.fullmatch(name):
        return name
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.strip())[:_NAME_LENGTH] or "unknown_tool"


def _used_ids(state: AgentState) -> set[str]:
    """Return the call ids of the session so far; the log is read once, then it is kept current."""
    if state.used_ids is None:
        state.used_ids = {
            block.id
            for event in state.session.events
            if isinstance(event.data, AssistantMessage)
            for block in event.data.content
            if isinstance(block, ToolCallBlock)
        }
    return state.used_ids


def _fresh(wanted: str, used: set[str]) -> str:
    call_id, number = wanted, 1
    while call_id in used:
        number += 1
        call_id = f"{wanted}_{number}"
    return call_id


async def _default_result(event: StepResult) -> Message:
    return event.message
