"""What stands in for the world around an agent: everything it meets says what the log says."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from dsh.agent import (
    AllowPrompt,
    BlockPrompt,
    ContinuationDecision,
    Continue,
    GiveUp,
    PromptDecision,
    RequestErrorDecision,
    Retry,
    Stop,
)
from dsh.agent.events import (
    AgentRequest,
    AgentRequestError,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    TurnContinuation,
)
from dsh.core import Context, JsonObject, Next, NextStream
from dsh.llm import ContentBlock, LlmCallConfig, LlmFailure, Message, StreamChunk, TextBlock
from dsh.llm.events import LlmStream
from dsh.session import (
    Failed,
    LiveSessions,
    MaxTurnRequests,
    MessageSource,
    MessageTrigger,
    PromptBlocked,
    Session,
    SessionEvent,
    StepEnd,
    ToolCall,
    TurnStart,
    UserSource,
)
from dsh.sessions.replay._overlap import Overlap
from dsh.sessions.replay._plan import Plan, Segment
from dsh.sessions.replay._steps import Step
from dsh.sessions.replay._turns import Place, Turn
from dsh.system_prompt import AssembledSection, PromptAssembly, SystemPromptAssemble
from dsh.tools import ToolExecutionResult
from dsh.tools.events import ToolExecute

__all__ = ["World"]

_UNKNOWN: Final = (TextBlock("(a prompt that the log does not tell of)"),)
_NOTHING: Final = (TextBlock("(no result of this call was recorded)"),)


class RecordedFailure(Exception):
    """Stands for whatever failed in the recorded turn."""

    def __init__(self, reason: Failed) -> None:
        super().__init__(reason.message)
        self.code: str | None = reason.code
        self.failure: LlmFailure | None = reason.failure


class World:
    """Answers every question a loop asks on the way.

    Args:
        plan: The recorded log.
        segment: What the agent makes of it.
    """

    session: Session
    """The log of the agent; set as soon as there is one."""

    def __init__(self, plan: Plan, segment: Segment) -> None:
        self._plan = plan
        self._segment = segment
        self._turn: Turn = segment.turns[0]
        self._decisions: deque[PromptDecision] = deque()
        self.overlap = Overlap(plan, segment, self._step)
        """Which tool calls run together."""

    def register(self, ctx: Context) -> None:
        """Put the world around the agent whose context this is."""
        ctx.on(SystemPromptAssemble, self._assemble, prepend=True)
        ctx.on(SessionPrefix, self._prefix, prepend=True)
        ctx.on(PromptSubmit, self._submit, prepend=True)
        ctx.on(AgentRequest, self._request, prepend=True)
        ctx.on(AgentRequestError, self._again, prepend=True)
        ctx.on(StepResult, self._reply, prepend=True)
        ctx.on(TurnContinuation, self._continue, prepend=True)
        ctx.on(LlmStream, self._stream, prepend=True, audience="all")
        ctx.on(ToolExecute, self._execute, prepend=True)
        ctx[LiveSessions].validator(ctx, self._validate, chunks=False)
        self.overlap.register(ctx)

    def enter(self, turn: Turn) -> list[tuple[tuple[ContentBlock, ...], MessageSource]]:
        """Begin a turn.

        Returns:
            The prompts to send for it.
        """
        self._turn = turn
        self._decisions.clear()
        if turn.kind != "message":
            return []
        prompts: list[tuple[tuple[ContentBlock, ...], MessageSource]] = []
        for prompt in turn.prompts:
            prompts.append((prompt.content, prompt.source))
            if isinstance(prompt, PromptBlocked):
                self._decisions.append(BlockPrompt(prompt.reason))
            else:
                self._decisions.append(AllowPrompt())
        if not prompts or (turn.fails is not None and turn.fails[1] == "prompt"):
            # of a prompt whose policy broke down the log says at most who sent it
            source = UserSource() if prompts else self._source(turn)
            prompts.append((_UNKNOWN, source))
        return prompts

    def _source(self, turn: Turn) -> MessageSource:
        start = self._plan.events[turn.start].data
        trigger = start.trigger if isinstance(start, TurnStart) else None
        return trigger.source if isinstance(trigger, MessageTrigger) else UserSource()

    # --- questions ------------------------------------------------------------------------

    async def _submit(self, event: PromptSubmit, next: Next[PromptDecision]) -> PromptDecision:
        if self._decisions:
            return self._decisions.popleft()
        self._break_at("prompt")
        return AllowPrompt()

    async def _assemble(
        self, event: SystemPromptAssemble, next: Next[PromptAssembly]
    ) -> PromptAssembly:
        self._break_at("assembly")
        step = self._step(ahead=1)
        header = None if step is None else step.header
        system = None if header is None else header.system
        return PromptAssembly(
            # as a variable: its text may look like a reference to one
            [AssembledSection("recorded", 0, "{{recorded}}")] if system else [],
            list(header.tools or ()) if header is not None else [],
            {"recorded": system},
        )

    async def _prefix(
        self, event: SessionPrefix, next: Next[tuple[Message, ...]]
    ) -> tuple[Message, ...]:
        return self._segment.prefix

    async def _request(self, event: AgentRequest, next: Next[LlmCallConfig]) -> LlmCallConfig:
        self._break_at("config")
        step = self._step()
        return event.config if step is None or step.header is None else step.header.config

    async def _stream(
        self, event: LlmStream, next: NextStream[StreamChunk]
    ) -> AsyncGenerator[StreamChunk, None]:
        if event.request.session_id != self.session.id:
            async with aclosing(next()) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        step = self._step()
        for chunk in () if step is None else step.chunks:
            yield chunk
        self._break_at("stream")

    async def _reply(self, event: StepResult, next: Next[Message]) -> Message:
        self._break_at("reply")
        return event.message

    async def _execute(
        self, event: ToolExecute, next: Next[ToolExecutionResult]
    ) -> ToolExecutionResult:
        call_id = event.execution.call_id
        result = self._plan.results.get(call_id)
        if result is None:
            return ToolExecutionResult(call_id, _NOTHING, is_error=True)
        meta: JsonObject | None = None if result.meta is None else dict(result.meta)
        return ToolExecutionResult(
            call_id, result.content, result.is_error, result.error, meta=meta
        )

    async def _again(
        self, event: AgentRequestError, next: Next[RequestErrorDecision]
    ) -> RequestErrorDecision:
        more = self._turn.goes_on(self._plan.events, self.session.seq)
        return Retry() if more else GiveUp()

    async def _continue(
        self, event: TurnContinuation, next: Next[ContinuationDecision]
    ) -> ContinuationDecision:
        self._break_at("policy")
        seq, turn = self.session.seq, self._turn
        limited = isinstance(turn.reason, MaxTurnRequests)
        ahead = turn.fails == (seq, "assembly") or turn.goes_on(self._plan.events, seq)
        return Continue() if limited or ahead else Stop()

    def _validate(self, session: Session, event: SessionEvent) -> None:
        """Refuse what the recorded log refused or objected to."""
        if session is not self.session:
            return
        if isinstance(event.data, ToolCall):
            self._break_at("call")
        elif isinstance(event.data, StepEnd):
            self._break_at("close")

    # --- inside ---------------------------------------------------------------------------

    def _break_at(self, place: Place) -> None:
        """Fail here if the recorded turn did."""
        turn = self._turn
        if turn.failure is not None and turn.fails == (self.session.seq, place):
            raise RecordedFailure(turn.failure)

    def _step(self, ahead: int = 0) -> Step | None:
        """Return what is known about the open step, or about the one to come."""
        turn = self.session.turn_open
        step = self.session.last_step + ahead
        return None if turn is None else self._plan.steps.get((turn, step))
