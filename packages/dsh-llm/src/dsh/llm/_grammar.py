"""Checks that a stream obeys the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from dsh.llm._chunks import (
    BlockEnd,
    BlockStart,
    Finish,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)

GrammarRule: TypeAlias = Literal[
    "invalid-index",
    "repeated-start",
    "delta-to-closed",
    "wrong-type",
    "end-mismatch",
    "repeated-usage",
    "after-finish",
    "open-at-success",
    "missing-finish",
    "unknown-chunk",
]
"""The rules of the protocol, by what breaks them."""


@dataclass(frozen=True, slots=True)
class GrammarViolation:
    """One way in which a stream breaks the protocol."""

    rule: GrammarRule
    """Which rule is broken."""
    message: str
    """What happened, for the author of the adapter."""


class StreamGrammar:
    """Checks one stream, chunk by chunk.

    It reports and never raises, and goes on after a violation as the assembler would, so one
    mistake is reported once.
    """

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._closed: set[int] = set()
        self._usage = False
        self._finished = False

    def push(self, chunk: StreamChunk) -> GrammarViolation | None:
        """Take the next chunk and return what is wrong with it, or None."""
        if self._finished:
            return GrammarViolation(
                "after-finish", f"{_name(chunk)} follows the finish, which ends the stream"
            )
        match chunk:
            case TextDelta(index=index):
                return self._delta(index, "text", chunk)
            case ReasoningDelta(index=index):
                return self._delta(index, "reasoning", chunk)
            case ToolCallDelta(index=index):
                return self._delta(index, "tool-call", chunk)
            case BlockStart():
                return self._start(chunk)
            case BlockEnd():
                return self._end(chunk)
            case UsageChunk():
                repeated, self._usage = self._usage, True
                if repeated:
                    return GrammarViolation("repeated-usage", "usage comes a second time")
                return None
            case Finish():
                return self._finish(chunk)
            case _:
                return GrammarViolation("unknown-chunk", f"{chunk!r} is no chunk of the protocol")

    def close(self, *, raised: bool = False) -> GrammarViolation | None:
        """Take the end of the stream and return what is wrong with it, or None.

        Args:
            raised: The stream ended by raising, which is its failure and not another one here.
        """
        if self._finished or raised:
            return None
        self._finished = True
        return GrammarViolation("missing-finish", "the stream ended without a finish")

    def _start(self, chunk: BlockStart) -> GrammarViolation | None:
        index = chunk.index
        if index < 0:
            return GrammarViolation("invalid-index", f"block {index} has a negative index")
        if index in self._open or index in self._closed:
            state = "open" if index in self._open else "closed"
            return GrammarViolation(
                "repeated-start", f"block {index} starts again while it is {state}"
            )
        self._open[index] = chunk.block_type
        return None

    def _delta(self, index: int, kind: str, chunk: StreamChunk) -> GrammarViolation | None:
        actual = self._open.get(index)
        if actual == kind:
            return None
        if actual is None:
            state = "already closed" if index in self._closed else "not open"
            return GrammarViolation(
                "delta-to-closed", f"{_name(chunk)} goes to block {index}, which is {state}"
            )
        return GrammarViolation(
            "wrong-type", f"{_name(chunk)} goes to block {index}, which is a {actual!r} block"
        )

    def _end(self, chunk: BlockEnd) -> GrammarViolation | None:
        index, kind = chunk.index, chunk.block.type
        actual = self._open.pop(index, None)
        if actual is None:
            state = "already closed" if index in self._closed else "not open"
            return GrammarViolation("end-mismatch", f"block {index} ends but is {state}")
        self._closed.add(index)
        if actual != kind:
            return GrammarViolation(
                "end-mismatch", f"block {index} started as {actual!r} and ends as {kind!r}"
            )
        return None

    def _finish(self, chunk: Finish) -> GrammarViolation | None:
        self._finished = True
        if self._open and not chunk.reason.failed:
            left = ", ".join(str(index) for index in self._open)
            return GrammarViolation(
                "open-at-success", f"the finish is {chunk.reason.kind!r} with open blocks: {left}"
            )
        return None


def _name(chunk: object) -> str:
    return str(getattr(chunk, "type", type(chunk).__name__))
