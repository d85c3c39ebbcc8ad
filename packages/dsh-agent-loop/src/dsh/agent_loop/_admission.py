"""How queued prompts get into the open turn, or stay out of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dsh.agent import AllowPrompt, BlockPrompt
from dsh.session import APPEND, ContextMessage, PromptBlocked, UserMessage

if TYPE_CHECKING:
    from dsh.agent_loop._agent import LoopAgent
    from dsh.agent_loop._queues import Queued


async def admit(agent: LoopAgent, prompts: Sequence[Queued]) -> str | None:
    """Log every prompt of a turn, or its veto.

    Returns:
        None when at least one prompt is in, else the last reason to keep one out.

    Raises:
        Exception: A policy raised, returned no decision, or added something unusable.
    """
    blocked: str | None = None
    admitted = False
    for item in prompts:
        decision = await agent.policies.prompt(item.content, item.source)
        if isinstance(decision, BlockPrompt):
            blocked = decision.reason
            _log_veto(agent, item, blocked)
        else:
            _log_prompt(agent, item, decision)
            admitted = True
    return None if admitted else blocked or "the prompt was blocked"


def _log_prompt(agent: LoopAgent, item: Queued, decision: AllowPrompt) -> None:
    content = item.content if decision.content is None else decision.content
    agent.session.append(UserMessage(content, item.source), APPEND)
    context = decision.additional_context
    if context is not None:
        agent.notes.inject(ContextMessage(context.content, context.source))


def _log_veto(agent: LoopAgent, item: Queued, reason: str) -> None:
    agent.book.block(item.receipt, reason)
    agent.session.append(PromptBlocked(item.content, item.source, reason))
