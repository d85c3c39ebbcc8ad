"""What is said to an agent: checked and copied at the door."""

from __future__ import annotations

from collections.abc import Iterable

from dsh.agent._types import HookContext, Prompt, blocks_of
from dsh.agent.errors import AgentFault
from dsh.llm import ContentBlock, ToolCallBlock, ToolResultBlock
from dsh.session import ContextMessage, MessageSource, UserSource, freeze


def checked_content(content: Prompt, where: str) -> tuple[ContentBlock, ...]:
    """Return a detached copy of what is said to an agent.

    Args:
        content: A text or content blocks.
        where: Name of the place for the error message.

    Returns:
        The blocks; nothing the caller still holds can change them.

    Raises:
        AgentFault: Code `BAD_CONTENT`.
        NotJsonError: The content would not survive a JSON round trip.
    """
    if not isinstance(content, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentFault(
            f"{where} was given a {type(content).__name__}",
            code=AgentFault.BAD_CONTENT,
            hint="say a text, or a list of content blocks such as TextBlock",
        )
    blocks = blocks_of(content)
    for index, block in enumerate(blocks):
        own = isinstance(block, ToolCallBlock | ToolResultBlock)
        if own or not isinstance(block, ContentBlock):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise AgentFault(
                f"{where}[{index}] is a {type(block).__name__}",
                code=AgentFault.BAD_CONTENT,
                hint="say a text, or a list of content blocks such as TextBlock; tool calls and "
                "results are the loop's own",
            )
    return freeze(blocks, where=where)


def checked_prompt(content: Prompt) -> tuple[ContentBlock, ...]:
    """Return a detached copy of a prompt or of steering.

    Args:
        content: A text or content blocks, at least one: providers refuse an empty message, and
            with it every later request of the session.

    Returns:
        The blocks; nothing the caller still holds can change them.

    Raises:
        AgentFault: Code `BAD_CONTENT`.
        NotJsonError: The content would not survive a JSON round trip.
    """
    blocks = checked_content(content, "prompt")
    if not blocks:
        raise AgentFault(
            "the prompt has no content block",
            code=AgentFault.BAD_CONTENT,
            hint="say a text, or at least one content block",
        )
    return blocks


def checked_source(source: MessageSource | None) -> MessageSource:
    """Return a detached copy of the source; the user when there is none.

    Args:
        source: Who says it, if anybody is named.

    Returns:
        The source to log.

    Raises:
        AgentFault: Code `BAD_CONTENT`: it is no source.
        NotJsonError: It would not survive a JSON round trip.
    """
    if source is None:
        return UserSource()
    if not isinstance(source, MessageSource):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise AgentFault(
            f"source is a {type(source).__name__}",
            code=AgentFault.BAD_CONTENT,
            hint='say who it is with dsh.session.PluginSource("my-plugin")',
        )
    return freeze(source, where="source")


def context_message(context: HookContext) -> ContextMessage:
    """Return the log payload of what a policy adds.

    Args:
        context: What the policy gave.

    Returns:
        The payload, checked and detached.

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
