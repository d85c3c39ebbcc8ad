"""The assembler: what a stream's chunks add up to."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.llm import (
    STOP,
    BlockAssembler,
    BlockEnd,
    BlockStart,
    ContentBlock,
    Finish,
    FinishReason,
    LlmError,
    Message,
    ReasoningBlock,
    ReasoningDelta,
    ReplayState,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UnknownBlock,
    UsageChunk,
)


def assembled(*chunks: StreamChunk) -> BlockAssembler:
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    return assembler


# case: B-01
def test_interleaved_blocks_keep_first_seen_order() -> None:
    assembler = BlockAssembler()
    returned = [
        assembler.push(chunk)
        for chunk in (
            BlockStart(1, "reasoning"),
            ReasoningDelta(1, "hm"),
            BlockStart(0, "text"),
            TextDelta(0, "he"),
            ToolCallDelta(2, "c1", '{"a"', "tool"),
            ReasoningDelta(1, "m"),
            TextDelta(0, "llo"),
            ToolCallDelta(2, "c1", ":1}"),
            BlockEnd(1, ReasoningBlock("hmm")),
            BlockEnd(0, TextBlock("hello")),
            BlockEnd(2, ToolCallBlock("c1", "tool", '{"a":1}')),
        )
    ]
    expected = (
        ReasoningBlock("hmm"),
        TextBlock("hello"),
        ToolCallBlock("c1", "tool", '{"a":1}'),
    )
    assert returned == [None] * 8 + list(expected)
    assert assembler.blocks() == expected
    assert assembler.message() == Message("assistant", expected)


# case: B-01
# case: LLM-18
def test_deltas_alone_assemble() -> None:
    assembler = assembled(
        ReasoningDelta(0, "th"),
        ReasoningDelta(0, "ink"),
        TextDelta(1, "say"),
        ToolCallDelta(2, "", "{", "run"),
        ToolCallDelta(2, "id", "}"),
    )
    assert assembler.blocks() == (
        ReasoningBlock("think"),
        TextBlock("say"),
        ToolCallBlock("id", "run", "{}"),
    )


# case: B-02
# case: LLM-19
def test_what_comes_for_a_known_or_closed_block_is_ignored() -> None:
    assembler = assembled(BlockStart(0, "text"), TextDelta(0, "a"))
    assert assembler.push(BlockStart(0, "reasoning")) is None
    assert assembler.blocks() == (TextBlock("a"),)
    assert assembler.push(BlockEnd(0, TextBlock("final"))) == TextBlock("final")
    for late in (
        BlockStart(0, "text"),
        TextDelta(0, "x"),
        ReasoningDelta(0, "x"),
        ToolCallDelta(0, "x", "x"),
        BlockEnd(0, TextBlock("second")),
    ):
        assert assembler.push(late) is None
    assert assembler.blocks() == (TextBlock("final"),)


def test_a_block_may_consist_of_its_end() -> None:
    unknown = UnknownBlock("citation", {"of": 1})
    assert assembled(BlockEnd(3, unknown)).blocks() == (unknown,)


# case: B-03
def test_an_open_call_without_id_and_name_gets_a_fallback() -> None:
    assembler = assembled(BlockStart(4, "tool-call"))
    assert assembler.blocks() == (ToolCallBlock("call-4", "", ""),)


def test_the_last_id_and_the_last_name_that_is_one_win() -> None:
    assembler = assembled(
        ToolCallDelta(0, "a", "", "first"),
        ToolCallDelta(0, "b", "", "second"),
        ToolCallDelta(0, "c", "", ""),
    )
    assert assembler.blocks() == (ToolCallBlock("c", "second", ""),)


def test_deltas_of_another_kind_do_not_corrupt_a_block() -> None:
    call = assembled(ToolCallDelta(0, "a", "{", "t"), TextDelta(0, "stray"))
    assert call.blocks() == (ToolCallBlock("a", "t", "{"),)
    text = assembled(TextDelta(0, "a"), ReasoningDelta(0, "b"), ToolCallDelta(0, "i", "{}"))
    assert text.blocks() == (TextBlock("ab"),)


# case: B-03
def test_an_open_block_of_a_foreign_kind_cannot_be_read() -> None:
    assembler = assembled(TextDelta(0, "a"), BlockStart(1, "image"))
    with pytest.raises(LlmError, match="'image' and was never closed") as caught:
        assembler.blocks()
    assert caught.value.code == LlmError.MALFORMED_RESPONSE
    with pytest.raises(LlmError):
        assembler.message()
    assembler.push(BlockEnd(1, UnknownBlock("image", {})))
    assert assembler.blocks() == (TextBlock("a"), UnknownBlock("image", {}))


# case: B-03
def test_what_is_no_chunk_is_refused() -> None:
    with pytest.raises(LlmError, match="no chunk of the protocol") as caught:
        BlockAssembler().push(cast("Any", {"type": "text-delta"}))
    assert caught.value.code == LlmError.MALFORMED_RESPONSE


# case: LLM-20
def test_max_tokens_drops_tool_calls_from_the_message() -> None:
    assembler = assembled(
        TextDelta(0, "so far"),
        BlockEnd(1, ToolCallBlock("a", "t", "{}")),
        ToolCallDelta(2, "b", '{"cut'),
        Finish(FinishReason("max-tokens")),
    )
    assert assembler.message() == Message("assistant", (TextBlock("so far"),))
    assert len(assembler.blocks()) == 3


# case: LLM-20
def test_a_message_of_cut_calls_alone_is_empty() -> None:
    assembler = assembled(ToolCallDelta(0, "b", '{"cut'), Finish(FinishReason("max-tokens")))
    assert assembler.message() == Message("assistant", ())


# case: LLM-21
def test_interrupted_blocks_are_what_a_person_has_seen() -> None:
    assembler = assembled(
        BlockEnd(0, ReasoningBlock("closed")),
        TextDelta(1, " \n"),
        BlockEnd(2, ToolCallBlock("a", "t", "{}")),
        TextDelta(3, "open"),
        ToolCallDelta(4, "b", "{"),
        BlockStart(5, "image"),
        BlockEnd(6, TextBlock("")),
        ReasoningDelta(7, "more"),
    )
    assert assembler.interrupted_blocks() == (
        ReasoningBlock("closed"),
        TextBlock("open"),
        ReasoningBlock("more"),
    )


def test_without_finish_and_usage_the_defaults_are_read() -> None:
    assembler = assembled(TextDelta(0, "a"))
    assert assembler.finish is STOP
    assert not assembler.finished
    assert assembler.usage is None


def test_the_last_usage_and_finish_win() -> None:
    assembler = assembled(
        UsageChunk(TokenUsage(1, 1)),
        UsageChunk(TokenUsage(2, 2)),
        Finish(FinishReason("stop")),
        Finish(FinishReason("refusal")),
    )
    assert assembler.usage == TokenUsage(2, 2)
    assert assembler.finish == FinishReason("refusal")
    assert assembler.finished


def replayed(state: dict[str, Any], kind: str, *blocks: ContentBlock) -> ReplayState | None:
    ends = [BlockEnd(index, block) for index, block in enumerate(blocks)]
    return (
        assembled(*ends, Finish(FinishReason(kind), ReplayState("p", "m", state))).message().replay
    )


def test_replay_state_comes_with_the_message() -> None:
    state = {"response": "r1"}
    assert replayed(state, "stop", TextBlock("a")) == ReplayState("p", "m", {"response": "r1"})
    assert replayed(state, "error", TextBlock("a")) is None


def test_replay_entries_go_with_their_blocks() -> None:
    blocks = (TextBlock("a"), ToolCallBlock("b", "t", "{}"), TextBlock("c"))
    full: dict[str, Any] = {"v": 1, "blocks": ["a", "b", "c"]}
    assert replayed(full, "stop", *blocks) == ReplayState("p", "m", full)
    assert replayed(full, "max-tokens", *blocks) == ReplayState(
        "p", "m", {"v": 1, "blocks": ["a", "c"]}
    )
    for wrong in (["a"], "abc"):
        assert replayed({"blocks": wrong}, "stop", *blocks) is None


texts = st.text(max_size=4)
indexes = st.integers(0, 3)
blocks = st.one_of(
    st.builds(TextBlock, texts),
    st.builds(ReasoningBlock, texts),
    st.builds(ToolCallBlock, texts, texts, texts),
)
chunks: st.SearchStrategy[StreamChunk] = st.one_of(
    st.builds(BlockStart, indexes, st.sampled_from(["text", "reasoning", "tool-call"])),
    st.builds(TextDelta, indexes, texts),
    st.builds(ReasoningDelta, indexes, texts),
    st.builds(ToolCallDelta, indexes, texts, texts, st.none() | texts),
    st.builds(BlockEnd, indexes, blocks),
    st.builds(UsageChunk, st.builds(TokenUsage, st.integers(0), st.integers(0))),
    st.builds(Finish, st.builds(FinishReason, st.sampled_from(["stop", "max-tokens", "error"]))),
)


# case: B-04
@given(st.lists(chunks))
def test_any_stream_assembles(stream: list[StreamChunk]) -> None:
    assembler = assembled(*stream)
    seen = {chunk.index for chunk in stream if not isinstance(chunk, UsageChunk | Finish)}
    found = assembler.blocks()
    assert len(found) == len(seen)
    assert found == assembler.blocks()
    assert assembler.message() == assembler.message()
    assert assembler.interrupted_blocks() == assembler.interrupted_blocks()
    finishes = [chunk.reason for chunk in stream if isinstance(chunk, Finish)]
    assert assembler.finish == (finishes[-1] if finishes else STOP)
    usages = [chunk.usage for chunk in stream if isinstance(chunk, UsageChunk)]
    assert assembler.usage == (usages[-1] if usages else None)
    if assembler.finish.kind == "max-tokens":
        assert not any(isinstance(block, ToolCallBlock) for block in assembler.message().content)
    else:
        assert assembler.message().content == found
