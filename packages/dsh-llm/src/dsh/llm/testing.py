"""Helpers for tests of adapters and of code that consumes streams."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from dsh.llm._chunks import StreamChunk
from dsh.llm._grammar import GrammarViolation, StreamGrammar

__all__ = ["collect", "violations"]


async def collect(
    stream: AsyncGenerator[StreamChunk, None], *, check: bool = True
) -> list[StreamChunk]:
    """Read a stream to its end and close it.

    Args:
        stream: The stream.
        check: Also hold it against the protocol.

    Raises:
        AssertionError: The stream breaks the protocol; the message says how.
    """
    async with aclosing(stream) as chunks:
        seen = [chunk async for chunk in chunks]
    found = violations(seen) if check else []
    if found:
        raise AssertionError("; ".join(f"{item.rule}: {item.message}" for item in found))
    return seen


def violations(chunks: Iterable[StreamChunk]) -> list[GrammarViolation]:
    """Return every way in which a complete stream breaks the protocol."""
    grammar = StreamGrammar()
    found = [grammar.push(chunk) for chunk in chunks]
    found.append(grammar.close())
    return [item for item in found if item is not None]
