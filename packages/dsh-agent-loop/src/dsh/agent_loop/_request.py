"""Building one model request from what the agent's policies say."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.agent.events import AgentRequest, PreStep
from dsh.agent.loop import LoggedCall
from dsh.agent_loop._state import AgentState
from dsh.llm import CancelSignal, Message, ToolSchema
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


async def prepare_history(
    state: AgentState, turn: int, step: int, inputs: Inputs, signal: CancelSignal
) -> None:
    """Let listeners change the history before it becomes a request."""
    prefix = state.prefix or ()
    event = PreStep(state.agent, turn, step, inputs.system, prefix, signal)
    await state.policies.pre_step(event)


async def build_call(
    state: AgentState,
    turn: int,
    step: int,
    inputs: Inputs,
    history: tuple[Message, ...],
    signal: CancelSignal,
) -> LoggedCall:
    """Choose the configuration, log the request's header, and build the request from the log.

    Raises:
        AgentFault: Code `NO_MODEL`, `BAD_DECISION`.
        LlmError: The configuration does not fit the model.
    """
    seed = state.requests.seed()
    return await state.requests.build(
        state.spine.llm,
        await state.policies.config(AgentRequest(state.agent, turn, step, seed)),
        system=inputs.system,
        tools=inputs.tools,
        prefix=state.prefix or (),
        history=history,
        signal=signal,
    )
