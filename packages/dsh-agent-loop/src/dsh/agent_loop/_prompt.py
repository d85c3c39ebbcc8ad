"""What waits to be taken in."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.agent import Receipt
from dsh.llm import ContentBlock
from dsh.session import MessageSource


@dataclass(frozen=True, slots=True)
class Queued:
    """A prompt or a steering message that waits for its turn."""

    content: tuple[ContentBlock, ...]
    source: MessageSource
    receipt: Receipt | None
    """None for steering that a policy asked for."""
