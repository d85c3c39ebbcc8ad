"""The entries of a script: what a model call gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from dsh.llm import LlmFailure, LlmRequest, StreamChunk
from dsh.llm_replay.server import Gate


@dataclass(frozen=True, slots=True)
class Throw:
    """Yield a prefix, then raise an `LlmError`: the provider failed without a finish."""

    message: str
    """What the error says."""
    code: str = "SERVER"
    """Its stable code."""
    chunks: tuple[StreamChunk, ...] = ()
    """What comes before it."""
    failure: LlmFailure | None = None
    """More facts, such as the HTTP status."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Yield a prefix, then stay silent until the request is aborted."""

    chunks: tuple[StreamChunk, ...] = ()
    """What comes before the silence."""
    ready_file: Path | None = None
    """A file that is made when the silence begins, for tests that watch from another process."""


@dataclass(frozen=True, slots=True)
class Held:
    """Play chunks, stopping at a gate on the way."""

    chunks: tuple[StreamChunk, ...]
    """All chunks."""
    gate: Gate
    """Where to stop; `await gate.reached()` and `gate.open()` belong to the test."""
    after: int = 1
    """How many chunks are yielded before the gate."""


Answer: TypeAlias = Sequence[StreamChunk] | Throw | Hang | Held
"""What one model call gets; a plain sequence of chunks is played to its end."""

EntryFunction: TypeAlias = Callable[[LlmRequest], Answer | Awaitable[Answer]]
"""Answers a request by looking at it; may be asynchronous."""

Entry: TypeAlias = Answer | EntryFunction
"""One entry of a script."""
