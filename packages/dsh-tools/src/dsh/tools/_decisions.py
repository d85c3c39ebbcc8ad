"""What policies decide before and after a tool runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dsh.agent import HookContext
from dsh.llm import ContentBlock

__all__ = ["Accept", "Allow", "Ask", "Block", "Deny", "PostToolDecision", "PreToolDecision"]


@dataclass(frozen=True, slots=True)
class Allow:
    """Let the call run. Guards are still consulted and can still deny it."""


@dataclass(frozen=True, slots=True)
class Deny:
    """Refuse the call."""

    reason: str
    """Why, for the model."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Let a person decide."""

    reason: str | None = None
    """Why a person is asked, for that person; also the denial where nobody can be asked."""


PreToolDecision: TypeAlias = Allow | Deny | Ask
"""What a listener of `tools/pre-execute` answers."""


@dataclass(frozen=True, slots=True)
class Accept:
    """Keep the result. An error stays an error whatever the content says."""

    content: Sequence[ContentBlock] | None = None
    """Replaces the content; None keeps it."""
    additional_context: HookContext | Sequence[HookContext] | None = None
    """Replaces the contexts attached to the result; None keeps them."""


@dataclass(frozen=True, slots=True)
class Block:
    """Replace the result by an error."""

    feedback: Sequence[ContentBlock]
    """What the model reads instead."""
    additional_context: HookContext | Sequence[HookContext] | None = None
    """Contexts to attach; those of the result are dropped."""


PostToolDecision: TypeAlias = Accept | Block
"""What a listener of `tools/post-execute` answers."""
