"""Building a model request so that the log alone can build it again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from dsh.agent._agent import Agent
from dsh.agent.loopkit._checkpoints import Checkpoints
from dsh.llm import (
    CancelSignal,
    LlmCallConfig,
    LlmError,
    LlmRequest,
    LlmService,
    Message,
    PreparedCall,
    StreamChunk,
    ToolSchema,
)
from dsh.session import HeaderRecord, RequestHeader, record_request_header


@dataclass(frozen=True, slots=True)
class LoggedCall:
    """A request whose header is in the log and that is ready to be made."""

    request: LlmRequest
    """The request; it is marked `loop`, and nothing in it can change."""
    prepared: PreparedCall | None
    """The settled call; None when no adapter is known, and the stream says so in its own words."""
    llm: LlmService
    """Who makes it."""

    def stream(self) -> AsyncGenerator[StreamChunk, None]:
        """Make the request.

        Returns:
            The stream; consume it inside `async with aclosing(...)`.
        """
        if self.prepared is not None:
            return self.prepared.stream(self.request)
        return self.llm.stream(self.request)


class Requests:
    """Makes the requests of one agent: configuration, header in the log, request from the log.

    Keep one for as long as the agent is driven; the first request logs a whole header.

    Args:
        agent: The agent.
        checkpoints: Makes its log durable before each request.
    """

    __slots__ = ("_agent", "_checkpoints", "_filled", "_record")

    def __init__(self, agent: Agent, checkpoints: Checkpoints) -> None:
        self._agent = agent
        self._checkpoints = checkpoints
        self._record = HeaderRecord()
        self._filled: frozenset[str] = frozenset()

    def seed(self) -> LlmCallConfig:
        """Return the configuration to start from, for `agent/request`.

        Returns:
            Before the agent's first request its options, later what the last request had: a
            choice a listener has made once holds until somebody makes another.
        """
        header = self._agent.session.request_header()
        if self._record.anchored and header is not None:
            logged, filled = header.config, self._filled
            # what an adapter filled in must not stick when a listener picks another model
            return replace(
                logged,
                max_tokens=None if "max_tokens" in filled else logged.max_tokens,
                reasoning_effort=None if "reasoning_effort" in filled else logged.reasoning_effort,
            )
        options = self._agent.options
        return LlmCallConfig(
            model=options.model or "",
            temperature=options.temperature,
            max_tokens=options.max_tokens,
            stop=options.stop,
            reasoning_effort=options.reasoning_effort,
        )

    async def build(
        self,
        llm: LlmService,
        config: LlmCallConfig,
        *,
        system: str,
        tools: tuple[ToolSchema, ...],
        prefix: tuple[Message, ...],
        history: tuple[Message, ...],
        signal: CancelSignal,
    ) -> LoggedCall:
        """Log the request's header, where it has changed, and build the request from the log.

        Call it inside the open step, and look at the signal again before the request is made:
        the log is made durable in here, which takes its time.

        Args:
            llm: The model service.
            config: What the policies chose.
            system: The rendered system prompt; empty when there is none.
            tools: What the model may call.
            prefix: The messages in front of the history.
            history: `session.derive_messages()` as it was when the step was opened.
            signal: Aborts the request.

        Returns:
            The call.

        Raises:
            LlmError: The configuration does not fit the model.
            NotJsonError: The header would not survive a JSON round trip.
            Exception: The log refused the header, or could not be made durable.
        """
        prepared = await _prepare(llm, config)
        if prepared is not None:
            config = prepared.config
        session = self._agent.session
        record_request_header(session, self._record, RequestHeader(config, system, tools, prefix))
        self._filled = frozenset() if prepared is None else prepared.defaults
        header = session.request_header()
        assert header is not None
        logged = header.message_prefix
        request = LlmRequest(
            model=config.model,
            messages=history if logged is None else (*logged, *history),
            system=header.system,
            tools=header.tools,
            temperature=config.temperature,
            max_tokens=config.max_tokens,
            stop=config.stop,
            reasoning_effort=config.reasoning_effort,
            signal=signal,
            session_id=session.id,
            loop=True,
        )
        await self._checkpoints.reach(signal)
        return LoggedCall(request, prepared, llm)


async def _prepare(llm: LlmService, config: LlmCallConfig) -> PreparedCall | None:
    try:
        return await llm.prepare(config)
    except LlmError as error:
        # a listener of llm/stream may serve a model that no adapter knows
        if error.code != LlmError.NO_ADAPTER:
            raise
        return None
