"""How queued prompts get into the open turn, or stay out of it."""

from __future__ import annotations

from collections.abc import Sequence

from dsh.agent import AllowPrompt, BlockPrompt
from dsh.agent_loop._state import AgentState, Queued
from dsh.session import APPEND, ContextMessage, PromptBlocked, UserMessage


async def admit(state: AgentState, prompts: Sequence[Queued]) -> str | None:
    """Log every prompt of a turn, or its veto.

    Returns:
        None when at least one prompt is in, else the last reason to keep one out.

    Raises:
        Exception: A policy raised, returned no decision, or added something unusable.
    """
    blocked: str | None = None
    admitted = False
    for item in prompts:
        decision = await state.policies.prompt(item.content, item.source)
        if isinstance(decision, BlockPrompt):
            blocked = decision.reason
            _log_veto(state, item, blocked)
        else:
            _log_prompt(state, item, decision)
            admitted = True
    return None if admitted else blocked or "the prompt was blocked"


def _log_prompt(state: AgentState, item: Queued, decision: AllowPrompt) -> None:
    content = item.content if decision.content is None else decision.content
    state.session.append(UserMessage(content, item.source), APPEND)
    context = decision.additional_context
    if context is not None:
        state.notes.inject(ContextMessage(context.content, context.source))


def _log_veto(state: AgentState, item: Queued, reason: str) -> None:
    if item.receipt is not None:
        state.book.block(item.receipt, reason)
    state.session.append(PromptBlocked(item.content, item.source, reason))
