"""The grammar checker: every rule, broken and kept."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    GrammarViolation,
    ReasoningBlock,
    ReasoningDelta,
    StreamChunk,
    StreamGrammar,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm.testing import violations

START = BlockStart(0, "text")
END = BlockEnd(0, TextBlock("a"))
USAGE = UsageChunk(TokenUsage(1, 1))
STOP = Finish(FinishReason("stop"))
ERROR = Finish(FinishReason("error", "no", "SERVER"))

BROKEN: list[tuple[str, list[StreamChunk]]] = [
    ("repeated-start", [START, START, END, STOP]),
    ("repeated-start", [START, END, START, STOP]),
    ("delta-to-closed", [START, END, TextDelta(0, "b"), STOP]),
    ("delta-to-closed", [TextDelta(0, "b"), STOP]),
    ("wrong-type", [START, ReasoningDelta(0, "b"), END, STOP]),
    ("wrong-type", [START, ToolCallDelta(0, "i", "{"), END, STOP]),
    ("end-mismatch", [START, BlockEnd(0, ReasoningBlock("a")), STOP]),
    ("end-mismatch", [END, STOP]),
    ("end-mismatch", [START, END, END, STOP]),
    ("repeated-usage", [USAGE, USAGE, STOP]),
    ("after-finish", [STOP, USAGE]),
    ("after-finish", [STOP, STOP]),
    ("open-at-success", [START, STOP]),
    ("open-at-success", [START, Finish(FinishReason("max-tokens"))]),
    ("missing-finish", [START, END]),
    ("missing-finish", []),
    ("invalid-index", [BlockStart(-1, "text"), STOP]),
    ("unknown-chunk", [cast("Any", {"type": "ping"}), STOP]),
]


# case: LLM-22
@pytest.mark.parametrize(("rule", "stream"), BROKEN)
def test_a_broken_rule_is_reported_once(rule: str, stream: list[StreamChunk]) -> None:
    assert [found.rule for found in violations(stream)] == [rule]


# case: LLM-22
@pytest.mark.parametrize(
    "stream",
    [
        [STOP],
        [ERROR],
        [START, TextDelta(0, "a"), ERROR],
        [START, Finish(FinishReason("aborted", "by the user", "ABORTED"))],
        [
            BlockStart(0, "reasoning"),
            BlockStart(1, "tool-call"),
            ReasoningDelta(0, "a"),
            ToolCallDelta(1, "", "{", "t"),
            BlockEnd(0, ReasoningBlock("a")),
            BlockStart(2, "image"),
            ToolCallDelta(1, "i", "}"),
            BlockEnd(1, ToolCallBlock("i", "t", "{}")),
            ERROR,
        ],
        [START, TextDelta(0, "a"), END, USAGE, Finish(FinishReason("refusal"))],
    ],
)
def test_a_stream_that_keeps_the_rules_passes(stream: list[StreamChunk]) -> None:
    assert violations(stream) == []


# case: LLM-22
def test_a_stream_that_raised_lacks_no_finish() -> None:
    grammar = StreamGrammar()
    assert grammar.push(START) is None
    assert grammar.close(raised=True) is None
    assert StreamGrammar().close() == GrammarViolation(
        "missing-finish", "the stream ended without a finish"
    )


def test_the_end_is_reported_once() -> None:
    grammar = StreamGrammar()
    assert grammar.close() is not None
    assert grammar.close() is None


def test_messages_name_the_chunk_and_the_block() -> None:
    (found,) = violations([START, END, TextDelta(0, "b"), STOP])
    assert found.message == "text-delta goes to block 0, which is already closed"
