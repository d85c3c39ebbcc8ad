"""How queued prompts get into the open turn, or stay out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from dsh.agent import AllowPrompt, BlockPrompt, PromptDecision
from dsh.agent.events import PromptSubmit
from dsh.agent_loop._decisions import no_decision
from dsh.agent_loop._notes import Notes
from dsh.agent_loop._prompt import Queued, checked_content, context_message
from dsh.agent_loop._state import AgentState
from dsh.session import APPEND, PromptBlocked, UserMessage


async def admit(state: AgentState, notes: Notes, prompts: Sequence[Queued]) -> str | None:
    """Log every prompt of a turn, or its veto.

    Returns:
        None when at least one prompt is in, else the last reason to keep one out.

    Raises:
        Exception: A policy raised, returned no decision, or added something unusable.
    """
    blocked: str | None = None
    admitted = False
    for item in prompts:
        event = PromptSubmit(state.agent, item.content, item.source)
        decision = cast("object", await state.spine.ctx.waterfall(event, _allow))
        match decision:
            case AllowPrompt():
                _log_prompt(state, notes, item, decision)
                admitted = True
            case BlockPrompt(reason=reason):
                blocked = reason
                _log_veto(state, item, reason)
            case _:
                raise no_decision("agent/prompt-submit", decision)
    return None if admitted else blocked or "the prompt was blocked"


def _log_prompt(state: AgentState, notes: Notes, item: Queued, decision: AllowPrompt) -> None:
    content = item.content
    if decision.content is not None:
        content = checked_content(decision.content, "prompt")
    state.session.append(UserMessage(content, item.source), APPEND)
    if decision.additional_context is not None:
        notes.inject(context_message(decision.additional_context))


def _log_veto(state: AgentState, item: Queued, reason: str) -> None:
    if item.receipt is not None:
        state.book.block(item.receipt, reason)
    state.session.append(PromptBlocked(item.content, item.source, reason))


async def _allow(event: PromptSubmit) -> PromptDecision:
    return AllowPrompt()
