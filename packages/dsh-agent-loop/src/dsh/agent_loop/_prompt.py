"""What is said to an agent: checked and copied at the door."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.agent import AgentFault, HookContext, Prompt, Receipt, blocks_of
from dsh.llm import ContentBlock, ReasoningBlock, TextBlock, UnknownBlock
from dsh.session import ContextMessage, MessageSource, UserSource, freeze


@dataclass(frozen=True, slots=True)
class Queued:
    """A prompt or a steering message that waits for its turn."""

    content: tuple[ContentBlock, ...]
    source: MessageSource
    receipt: Receipt | None
    """None for steering that a policy asked for."""


def checked_content(content: Prompt, where: str) -> tuple[ContentBlock, ...]:
    """Return a detached copy of the content.

    Args:
        content: A text or content blocks.
        where: Name of the place for the error message.

    Raises:
        AgentFault: Code `BAD_CONTENT`.
        NotJsonError: The content would not survive a JSON round trip.
    """
    blocks = blocks_of(content)
    for index, block in enumerate(blocks):
        if not isinstance(block, TextBlock | ReasoningBlock | UnknownBlock):
            raise AgentFault(
                f"{where}[{index}] is a {type(block).__name__}",
                code=AgentFault.BAD_CONTENT,
                hint="say a text or content blocks; tool calls and results are the loop's own",
            )
    return freeze(blocks, where=where)


def checked_source(source: MessageSource | None) -> MessageSource:
    """Return a detached copy of the source; the user when there is none.

    Raises:
        NotJsonError: It would not survive a JSON round trip.
    """
    return UserSource() if source is None else freeze(source, where="source")


def context_message(context: HookContext) -> ContextMessage:
    """Return the log payload of what a policy adds.

    Raises:
        AgentFault: Code `BAD_CONTENT` or `BAD_DECISION`.
        NotJsonError: It would not survive a JSON round trip.
    """
    if not isinstance(context, HookContext):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentFault(
            f"additional context is a {type(context).__name__}, not a HookContext",
            code=AgentFault.BAD_DECISION,
        )
    return ContextMessage(
        checked_content(context.content, "context"), freeze(context.source, where="source")
    )
