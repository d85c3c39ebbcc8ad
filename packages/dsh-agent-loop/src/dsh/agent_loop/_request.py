"""Building one model request, so that the log alone can build it again."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import cast

from dsh.agent import AgentFault
from dsh.agent.events import AgentRequest, PreStep, SessionPrefix
from dsh.agent_loop._decisions import no_decision
from dsh.agent_loop._state import AgentState
from dsh.llm import (
    CancelSignal,
    LlmCallConfig,
    LlmError,
    LlmRequest,
    Message,
    PreparedCall,
    StreamChunk,
    ToolSchema,
)
from dsh.session import EpochHeader, freeze, record_request_header
from dsh.system_prompt import AssembleContext, render_prompt


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a request holds besides history and configuration."""

    system: str
    tools: tuple[ToolSchema, ...]


async def assemble(state: AgentState) -> Inputs:
    """Assemble and render the system prompt and the tools of the agent."""
    prompt = await state.spine.system_prompt.assemble(AssembleContext.for_agent(state.agent))
    return Inputs(render_prompt(prompt), tuple(prompt.tools))


async def compose_prefix(state: AgentState, signal: CancelSignal) -> tuple[Message, ...]:
    """Compose the messages in front of the history."""
    composed = await state.spine.ctx.waterfall(
        SessionPrefix(state.agent, (), signal), _default_prefix
    )
    messages = freeze(tuple(composed), where="session prefix")
    for message in messages:
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise no_decision("agent/session-prefix", message, "a tuple of messages")
    return messages


async def prepare_history(
    state: AgentState, turn: int, step: int, inputs: Inputs, signal: CancelSignal
) -> None:
    """Let listeners change the history before it becomes a request."""
    prefix = state.prefix or ()
    event = PreStep(state.agent, turn, step, inputs.system, prefix, signal)
    result = cast("object", await state.spine.ctx.serial(event))
    if result is not None:
        raise no_decision("agent/pre-step", result, "nothing")


@dataclass(frozen=True, slots=True)
class Call:
    """A request that is logged and ready to be made."""

    request: LlmRequest
    prepared: PreparedCall | None
    """None when no adapter is known; the stream then says so in its own words."""

    def stream(self, state: AgentState) -> AsyncGenerator[StreamChunk, None]:
        """Make the request."""
        if self.prepared is not None:
            return self.prepared.stream(self.request)
        return state.spine.llm.stream(self.request)


async def build_call(
    state: AgentState,
    turn: int,
    step: int,
    inputs: Inputs,
    history: tuple[Message, ...],
    signal: CancelSignal,
) -> Call:
    """Choose the configuration, log the request's header, and build the request from the log.

    Raises:
        AgentFault: Code `NO_MODEL`, `BAD_DECISION`.
        LlmError: The configuration does not fit the model.
    """
    wanted = await _choose(state, turn, step)
    prepared = await _prepare(state, wanted)
    config = wanted if prepared is None else prepared.config
    record_request_header(
        state.session,
        state.header,
        EpochHeader(config, inputs.system, inputs.tools, state.prefix),
    )
    state.defaults = frozenset() if prepared is None else prepared.defaults
    header = state.session.request_header()
    assert header is not None
    prefix = header.message_prefix
    request = LlmRequest(
        model=config.model,
        messages=history if prefix is None else (*prefix, *history),
        system=header.system,
        tools=header.tools,
        temperature=config.temperature,
        max_tokens=config.max_tokens,
        stop=config.stop,
        reasoning_effort=config.reasoning_effort,
        signal=signal,
        session_id=state.session.id,
        loop=True,
    )
    return Call(request, prepared)


async def _choose(state: AgentState, turn: int, step: int) -> LlmCallConfig:
    event = AgentRequest(state.agent, turn, step, _seed(state))
    config = cast("object", await state.spine.ctx.waterfall(event, _default_config))
    if not isinstance(config, LlmCallConfig):
        raise no_decision("agent/request", config, "an LlmCallConfig")
    if not config.model:
        raise AgentFault(
            f"agent {state.agent.id!r} has no model",
            code=AgentFault.NO_MODEL,
            hint="set AgentOptions.model, or supply one in a listener of agent/request",
        )
    return config


def _seed(state: AgentState) -> LlmCallConfig:
    """Return what the log says, or the agent's options before its first request."""
    header = state.session.request_header()
    if state.header.anchored and header is not None:
        logged, filled = header.config, state.defaults
        # what an adapter filled in must not stick when a listener picks another model
        return replace(
            logged,
            max_tokens=None if "max_tokens" in filled else logged.max_tokens,
            reasoning_effort=None if "reasoning_effort" in filled else logged.reasoning_effort,
        )
    options = state.agent.options
    return LlmCallConfig(
        model=options.model or "",
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        stop=options.stop,
        reasoning_effort=options.reasoning_effort,
    )


async def _prepare(state: AgentState, config: LlmCallConfig) -> PreparedCall | None:
    try:
        return await state.spine.llm.prepare(config)
    except LlmError as error:
        # a listener of llm/stream may serve a model that no adapter knows
        if error.code != LlmError.NO_ADAPTER:
            raise
        return None


async def _default_prefix(event: SessionPrefix) -> tuple[Message, ...]:
    return event.prefix


async def _default_config(event: AgentRequest) -> LlmCallConfig:
    return event.config
