"""One step: a request made from the log, and its reply."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

import anyio.lowlevel

from acme_loop.tools import Batch
from dsh.agent.events import AgentRequest, PreStep, StepResult
from dsh.agent.loopkit import CUT_OFF, LoggedCall, without_calls
from dsh.llm import (
    BlockAssembler,
    FinishReason,
    LlmCallConfig,
    LlmError,
    Message,
    StreamChunk,
    TextBlock,
    ToolCallBlock,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    MaxTokens,
    PluginSource,
    Refusal,
    SteeringMessage,
    StepStart,
)
from dsh.system_prompt import AssembleContext, render_prompt

if TYPE_CHECKING:
    from acme_loop.turn import Turn

WRAP_UP: Final = (
    "This turn has made all its steps with tools. There are none any more: say what you have "
    "found and what is left to do."
)


class RequestFailed(Exception):
    """The model did not answer."""

    def __init__(self, finish: FinishReason, config: LlmCallConfig) -> None:
        super().__init__(finish.message)
        self.finish = finish
        self.config = config

    def error(self) -> LlmError:
        """Return the error to report."""
        return LlmError.from_finish(self.finish)


class Step:
    """Makes one request and runs what it asks for."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.driver = turn.driver
        self.agent = turn.agent
        self.session = turn.session
        self.number = (turn.number, turn.step)
        self.wraps_up = turn.step > turn.driver.loop.config.wrap_up_after
        self._assembler = BlockAssembler()
        self._seqs: list[int] = []

    async def run(self) -> bool:
        """Run the step; return whether its tools want another one.

        Raises:
            RequestFailed: The model did not answer.
        """
        call = await self._open()
        if call is None or self.turn.stopped:
            return False
        await self._stream(call.stream())
        finish = self._assembler.finish
        if self.turn.stopped:
            content = self._assembler.interrupted_blocks()
            self._log(Message("assistant", content), interrupted=True)
            return False
        if finish.failed:
            raise RequestFailed(finish, call.request.config)
        message = await self._reply(finish)
        calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
        if not calls:
            self._log(message)
            return False
        # before the reply is logged: whoever hears of it may already inject
        self.agent.notes.hold()
        batch = Batch(self)
        try:
            self._log(message)
            await batch.run(calls)
        finally:
            batch.finish()
        return not self.wraps_up

    async def _open(self) -> LoggedCall | None:
        """Open the step and log its request; None when the turn was stopped before."""
        turn, driver, signal = self.turn, self.driver, self.turn.signal
        if turn.step == driver.loop.config.wrap_up_after + 1:
            note = SteeringMessage(turn.number, (TextBlock(WRAP_UP),), PluginSource("acme-loop"))
            self.session.append(note, APPEND)
        assembly = await driver.loop.prompt.assemble(AssembleContext.for_agent(self.agent))
        system = render_prompt(assembly)
        if turn.stopped:
            return None
        if driver.prefix is None:
            prefix = await driver.policies.prefix(signal)
            if turn.stopped:
                return None
            driver.prefix = prefix
        await driver.policies.pre_step(
            PreStep(self.agent, *self.number, system, driver.prefix, signal)
        )
        if turn.stopped:
            return None
        # the history of the request is what the log says right here
        history = self.session.derive_messages()
        self.session.append(StepStart(*self.number))
        if turn.stopped:
            return None
        seed = AgentRequest(self.agent, *self.number, driver.requests.seed())
        return await driver.requests.build(
            driver.loop.llm,
            await driver.policies.config(seed),
            system=system,
            tools=() if self.wraps_up else tuple(assembly.tools),
            prefix=driver.prefix,
            history=history,
            signal=signal,
        )

    async def _stream(self, stream: AsyncGenerator[StreamChunk, None]) -> None:
        """Log the chunks as they come; a stopped turn leaves the stream at once."""
        signal = self.turn.signal
        async with aclosing(stream) as chunks:
            with signal.cancel_scope():
                async for chunk in chunks:
                    if signal.aborted:
                        break
                    data = AssistantChunk(*self.number, chunk)
                    self._seqs.append(self.session.append(data).seq)
                    self._assembler.push(chunk)
                    # an adapter that never waits must not keep everybody else waiting
                    if len(self._seqs) % 64 == 0:
                        await anyio.lowlevel.checkpoint()
        usage = self._assembler.usage
        self.turn.output_tokens += 0 if usage is None else usage.output_tokens

    async def _reply(self, finish: FinishReason) -> Message:
        """Return the reply as it is to be logged."""
        message = self._assembler.message()
        cut = finish.kind in CUT_OFF
        if cut:
            message = without_calls(message)
            self.turn.verdict = MaxTokens() if finish.kind == "max-tokens" else Refusal()
        event = StepResult(self.agent, *self.number, message)
        message = await self.driver.policies.reply(event)
        return without_calls(message) if cut else self.driver.call_ids.mend(message, *self.number)

    def _log(self, message: Message, *, interrupted: bool = False) -> None:
        usage = self._assembler.usage
        if message.content or usage is not None:
            reply = AssistantMessage(
                *self.number, message.content, usage, interrupted, message.replay
            )
            self.session.append(reply, APPEND, self._seqs)
