"""From the payloads of the wire to the chunks of the stream protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.core import secrets
from dsh.llm import (
    BlockAssembler,
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmFailure,
    ReasoningBlock,
    ReasoningDelta,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from dsh.llm.testing import violations
from dsh.llm_deepseek._translate import Translator

Json = dict[str, Any]


def chunk(delta: Json | None = None, finish: str | None = None, usage: Json | None = None) -> Json:
    payload: Json = {"choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}]}
    return payload if usage is None else {**payload, "usage": usage}


def call(index: int | None, arguments: str | None, **fields: Any) -> Json:
    function = {k: v for k, v in (("name", fields.pop("name", None)),) if v is not None}
    if arguments is not None:
        function["arguments"] = arguments
    fragment = {"function": function, **fields}
    return {"tool_calls": [fragment if index is None else {"index": index, **fragment}]}


def translate(*payloads: Json | bytes, request_id: str | None = None) -> list[StreamChunk]:
    """Translate an answer, one payload a read, and hold it against the protocol."""
    translator = Translator("deepseek", request_id)
    out: list[StreamChunk] = []
    for payload in payloads:
        raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        out += translator.push([raw])
        if translator.failure is not None:
            break
    out += translator.end()
    assert violations(out) == []
    return out


def finish_of(chunks: list[StreamChunk]) -> FinishReason:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason


def usage_of(chunks: list[StreamChunk]) -> list[TokenUsage]:
    return [chunk.usage for chunk in chunks if isinstance(chunk, UsageChunk)]


def ends_of(chunks: list[StreamChunk]) -> list[BlockEnd]:
    return [chunk for chunk in chunks if isinstance(chunk, BlockEnd)]


# case: TR-01
def test_text_then_stop() -> None:
    assert translate(chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk({}, "stop")) == [
        BlockStart(0, "text"),
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        BlockEnd(0, TextBlock("Hello")),
        Finish(FinishReason("stop")),
    ]


# case: TR-02
def test_empty_strings_and_nulls_open_no_block() -> None:
    opening = {"role": "assistant", "content": None, "reasoning_content": ""}
    chunks = translate(chunk(opening), chunk({"content": "hi"}), chunk({"content": ""}, "stop"))
    assert chunks[0] == BlockStart(0, "text")
    assert sum(isinstance(c, BlockStart) for c in chunks) == 1
    assert sum(isinstance(c, TextDelta) for c in chunks) == 1


# case: TR-03
def test_reasoning_then_text_are_two_blocks() -> None:
    chunks = translate(
        chunk({"reasoning_content": "hm"}),
        chunk({"reasoning_content": "!", "content": "yes"}),
        chunk({}, "stop"),
    )
    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "hm"),
        ReasoningDelta(0, "!"),
        BlockStart(1, "text"),
        TextDelta(1, "yes"),
        BlockEnd(0, ReasoningBlock("hm!")),
        BlockEnd(1, TextBlock("yes")),
        Finish(FinishReason("stop")),
    ]


def test_the_newer_name_of_the_reasoning_field_is_read() -> None:
    chunks = translate(chunk({"reasoning": "hm"}), chunk({"content": "x"}, "stop"))
    assert ReasoningDelta(0, "hm") in chunks


def test_a_reasoning_field_of_another_shape_is_not_reasoning() -> None:
    chunks = translate(chunk({"reasoning": {"effort": "low"}, "content": "x"}, "stop"))
    assert [c.block for c in ends_of(chunks)] == [TextBlock("x")]


# case: TR-04
def test_without_reasoning_there_is_only_text() -> None:
    chunks = translate(chunk({"content": "x"}, "stop"))
    assert [c.block for c in ends_of(chunks)] == [TextBlock("x")]


# case: TR-05
def test_argument_fragments_add_up() -> None:
    chunks = translate(
        chunk(call(0, "", id="c1", name="bash")),
        chunk(call(0, '{"cmd":')),
        chunk(call(0, '"ls"}')),
        chunk({}, "tool_calls"),
    )
    deltas = [c for c in chunks if isinstance(c, ToolCallDelta)]
    assert [d.arguments_delta for d in deltas] == ["", '{"cmd":', '"ls"}']
    assert {(d.id, d.name) for d in deltas} == {("c1", "bash")}
    assert ends_of(chunks) == [BlockEnd(0, ToolCallBlock("c1", "bash", '{"cmd":"ls"}'))]
    assert finish_of(chunks) == FinishReason("tool-calls")


def test_the_worked_example_of_thinking_and_a_tool_call() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}
    chunks = translate(
        chunk({"role": "assistant", "content": None, "reasoning_content": ""}),
        chunk({"reasoning_content": "think"}),
        chunk(call(0, "", id="c1", name="bash")),
        chunk(call(0, '{"cmd":')),
        chunk(call(0, '"ls"}')),
        chunk({}, "tool_calls", usage),
    )
    assert chunks == [
        BlockStart(0, "reasoning"),
        ReasoningDelta(0, "think"),
        BlockStart(1, "tool-call"),
        ToolCallDelta(1, "c1", "", "bash"),
        ToolCallDelta(1, "c1", '{"cmd":', "bash"),
        ToolCallDelta(1, "c1", '"ls"}', "bash"),
        BlockEnd(0, ReasoningBlock("think")),
        BlockEnd(1, ToolCallBlock("c1", "bash", '{"cmd":"ls"}')),
        UsageChunk(TokenUsage(6, 5, cache_read_tokens=4)),
        Finish(FinishReason("tool-calls")),
    ]


# case: TR-06
def test_interleaved_calls_keep_their_fragments_apart() -> None:
    chunks = translate(
        chunk(call(0, "a", id="c1", name="x")),
        chunk(call(1, "1", id="c2", name="y")),
        chunk(call(0, "b")),
        chunk(call(1, "2")),
        chunk({}, "tool_calls"),
    )
    assert chunks[-3:-1] == [
        BlockEnd(0, ToolCallBlock("c1", "x", "ab")),
        BlockEnd(1, ToolCallBlock("c2", "y", "12")),
    ]


# case: TR-07
def test_text_resumes_in_its_first_block() -> None:
    chunks = translate(
        chunk({"content": "one "}),
        chunk(call(0, "{}", id="c1", name="x")),
        chunk({"content": "two"}),
        chunk({}, "tool_calls"),
    )
    assert [c.block for c in ends_of(chunks)] == [
        TextBlock("one two"),
        ToolCallBlock("c1", "x", "{}"),
    ]
    assert sum(isinstance(c, BlockStart) for c in chunks) == 2


# case: TR-08
def test_usage_in_a_trailing_payload() -> None:
    trailing: Json = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    chunks = translate(chunk({"content": "x"}, "stop"), trailing)
    assert chunks[-2:] == [UsageChunk(TokenUsage(3, 2)), Finish(FinishReason("stop"))]


# case: TR-09
def test_the_last_of_two_usage_samples_counts() -> None:
    first = {"prompt_tokens": 1, "completion_tokens": 1}
    trailing: Json = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    chunks = translate(chunk({"content": "x"}, "stop", first), trailing)
    assert usage_of(chunks) == [TokenUsage(3, 2)]


@pytest.mark.parametrize("usage", [None, {}, {"total_tokens": 3}])
def test_an_empty_usage_does_not_replace_a_real_one(usage: Json | None) -> None:
    real = {"prompt_tokens": 3, "completion_tokens": 2}
    chunks = translate(chunk({"content": "x"}, "stop", real), {"choices": [], "usage": usage})
    assert usage_of(chunks) == [TokenUsage(3, 2)]


# case: TR-10
def test_without_usage_there_is_no_usage_chunk() -> None:
    assert usage_of(translate(chunk({"content": "x"}, "stop"))) == []


# case: TR-11
def test_no_finish_reason_reads_as_stop() -> None:
    assert finish_of(translate(chunk({"content": "x"}))) == FinishReason("stop")


# case: TR-12
@pytest.mark.parametrize(
    "payload", [{}, {"choices": None}, {"choices": []}, {"id": "x", "object": "ping"}]
)
def test_payloads_without_choices_are_ignored(payload: Json) -> None:
    chunks = translate(payload, chunk({"content": "x"}, "stop"))
    assert finish_of(chunks) == FinishReason("stop")


def test_other_choices_than_the_first_are_ignored() -> None:
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    chunks = translate(chunk({"content": "x"}, "stop"), other)
    assert [c.block for c in ends_of(chunks)] == [TextBlock("x")]
    assert finish_of(chunks) == FinishReason("stop")


# case: TR-13
@pytest.mark.parametrize("reason", ["stop", "tool_calls", None])
def test_nothing_at_all_is_an_empty_response(reason: str | None) -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 0}
    chunks = translate(chunk({"content": ""}, reason, usage), request_id="req-1")
    assert usage_of(chunks) == [TokenUsage(3, 0)]
    reason_given = finish_of(chunks)
    assert (reason_given.kind, reason_given.code) == ("error", "EMPTY_RESPONSE")
    assert reason_given.failure == LlmFailure(request_id="req-1")


# case: TR-14
def test_reasoning_alone_is_an_answer() -> None:
    assert finish_of(translate(chunk({"reasoning_content": "hm"}, "stop"))).kind == "stop"


# case: TR-15
def test_length_with_nothing_opened_is_max_tokens() -> None:
    assert translate(chunk({}, "length")) == [Finish(FinishReason("max-tokens"))]


# case: TR-16
@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("content_filter", "CONTENT_FILTER"),
        ("insufficient_system_resource", "INSUFFICIENT_SYSTEM_RESOURCE"),
        ("Something else!", "SOMETHING_ELSE"),
        ("\x1b[31m", "31M"),
        ("\u00e9", "UNKNOWN"),
    ],
)
def test_other_finish_reasons_are_errors(word: str, code: str) -> None:
    chunks = translate(chunk({"content": "x"}, word))
    assert isinstance(chunks[-2], BlockEnd)
    reason = finish_of(chunks)
    assert (reason.kind, reason.code) == ("error", code)
    assert reason.message is not None
    assert "\x1b" not in reason.message


def test_a_refusal_is_told_apart() -> None:
    chunks = translate(chunk({"refusal": "I cannot "}), chunk({"refusal": "do that."}, "stop"))
    assert [c.block for c in ends_of(chunks)] == [TextBlock("I cannot do that.")]
    assert finish_of(chunks) == FinishReason("refusal")


# case: TR-17
def test_an_undecodable_payload_is_malformed_and_cut() -> None:
    chunks = translate(chunk({"content": "x"}), b"{not json " + b"y" * 500, chunk({}, "stop"))
    reason = finish_of(chunks)
    assert (reason.kind, reason.code) == ("error", "MALFORMED_RESPONSE")
    assert reason.message is not None
    assert "{not json" in reason.message
    assert len(reason.message) < 250
    assert ends_of(chunks) == []


@pytest.mark.parametrize(
    "payload",
    [
        b"[]",
        b'"text"',
        b"1",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"choices":1}',
        b'{"choices":"abc"}',
        b'{"choices":{"index":0}}',
        b'{"choices":[1]}',
        b'{"choices":[{"delta":[1]}]}',
        b'{"choices":[{"delta":"x"}]}',
        b'{"choices":[{"delta":{"content":5}}]}',
        b'{"choices":[{"delta":{"content":["a"]}}]}',
        b'{"choices":[{"delta":{"reasoning_content":{"a":1}}}]}',
        b'{"choices":[{"delta":{"tool_calls":[1]}}]}',
        b'{"choices":[{"delta":{"tool_calls":5}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":{},"id":"x"}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":7}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":"x"}]}}]}',
        b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":7}}]}}]}',
        b"[" * 100_000,
    ],
)
def test_payloads_of_a_wrong_shape_are_malformed(payload: bytes) -> None:
    reason = finish_of(translate(chunk({"content": "x"}), payload))
    assert (reason.kind, reason.code) == ("error", "MALFORMED_RESPONSE")


def test_a_secret_in_a_malformed_payload_is_not_repeated() -> None:
    secrets.add("sk-malformed-payload-key")
    # The key lies across the end of the excerpt: no part of it may stay.
    payload = b"{" + b"x" * 105 + b"sk-malformed-payload-key"
    reason = finish_of(translate(payload))
    assert reason.message is not None
    assert "sk-mal" not in reason.message


# case: TR-18
def test_cached_tokens_are_not_counted_twice() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "prompt_cache_hit_tokens": 9,
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    chunks = translate(chunk({"content": "x"}, "stop", usage))
    assert usage_of(chunks) == [TokenUsage(6, 5, cache_read_tokens=4, reasoning_tokens=2)]


# case: TR-19
def test_the_older_name_of_the_cache_counter() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}
    chunks = translate(chunk({"content": "x"}, "stop", usage))
    assert usage_of(chunks) == [TokenUsage(6, 5, cache_read_tokens=4)]


# case: TR-20
def test_counters_that_are_absent_stay_absent() -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": None}
    (found,) = usage_of(translate(chunk({"content": "x"}, "stop", usage)))
    assert found == TokenUsage(10, 5)
    assert (found.cache_read_tokens, found.cache_write_tokens) == (None, None)
    assert found.reasoning_tokens is None


@pytest.mark.parametrize("value", [-1, 1.5, "7", True, None, [], float("nan")])
def test_counters_that_are_no_counts_are_absent(value: object) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": value, "prompt_cache_hit_tokens": value}
    (found,) = usage_of(translate(chunk({"content": "x"}, "stop", usage)))
    assert found == TokenUsage(10, 0)


def test_more_cached_than_sent_tokens_is_no_negative_input() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 5, "prompt_cache_hit_tokens": 4}
    assert usage_of(translate(chunk({"content": "x"}, "stop", usage))) == [
        TokenUsage(0, 5, cache_read_tokens=4)
    ]


# case: TR-21
def test_calls_that_never_get_an_id_or_a_name() -> None:
    chunks = translate(chunk(call(0, "{")), chunk(call(0, "}")), chunk({}, "tool_calls"))
    assert ends_of(chunks) == [BlockEnd(0, ToolCallBlock("", "", "{}"))]
    deltas = [c for c in chunks if isinstance(c, ToolCallDelta)]
    assert {(d.id, d.name) for d in deltas} == {("", None)}


# case: TR-22
def test_fragments_without_a_function_or_arguments() -> None:
    chunks = translate(
        chunk({"tool_calls": [{"index": 0, "id": "c1"}]}),
        chunk({"tool_calls": [{"index": 0, "function": None}]}),
        chunk(call(0, None, name="bash")),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": None}}]}),
        chunk(call(0, "{}")),
        chunk({}, "tool_calls"),
    )
    assert ends_of(chunks) == [BlockEnd(0, ToolCallBlock("c1", "bash", "{}"))]


def test_arguments_sent_as_an_object_become_text() -> None:
    fragment = {"index": 0, "id": "c1", "function": {"name": "x", "arguments": {"a": "\u00e9"}}}
    chunks = translate(chunk({"tool_calls": [fragment]}, "tool_calls"))
    assert ends_of(chunks) == [BlockEnd(0, ToolCallBlock("c1", "x", '{"a":"\u00e9"}'))]


def test_calls_without_an_index_are_told_apart_by_their_ids() -> None:
    chunks = translate(
        chunk(call(None, "1", id="c1", name="x")),
        chunk(call(None, "2")),
        chunk(call(None, "3", id="c2", name="y")),
        chunk({}, "tool_calls"),
    )
    assert [c.block for c in ends_of(chunks)] == [
        ToolCallBlock("c1", "x", "12"),
        ToolCallBlock("c2", "y", "3"),
    ]


def test_calls_that_all_have_index_zero_are_told_apart_by_their_ids() -> None:
    chunks = translate(
        chunk(call(0, "{}", id="c1", name="x")),
        chunk(call(0, "{}", id="c2", name="x")),
        chunk({}, "tool_calls"),
    )
    assert [c.block for c in ends_of(chunks)] == [
        ToolCallBlock("c1", "x", "{}"),
        ToolCallBlock("c2", "x", "{}"),
    ]


def test_a_new_id_on_a_later_fragment_does_not_split_a_call() -> None:
    chunks = translate(
        chunk(call(0, "{", id="c1", name="x")),
        chunk(call(0, "}", id="other")),
        chunk({}, "tool_calls"),
    )
    assert [c.block for c in ends_of(chunks)] == [ToolCallBlock("c1", "x", "{}")]


# case: TR-23
def test_an_error_object_inside_the_stream() -> None:
    error = {"error": {"message": "You exceeded your current quota", "type": "x", "code": "y"}}
    chunks = translate(
        chunk({"content": "par"}),
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        error,
        chunk({"content": "tial"}, "stop"),
        request_id="req-9",
    )
    assert ends_of(chunks) == []
    assert usage_of(chunks) == [TokenUsage(1, 1)]
    reason = finish_of(chunks)
    assert (reason.kind, reason.code) == ("error", "QUOTA")
    assert reason.message is not None
    assert "You exceeded your current quota" in reason.message
    assert reason.failure == LlmFailure(request_id="req-9")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"message": "Insufficient Balance"}, "QUOTA"),
        (
            {"message": "This model's maximum context length is 131072 tokens"},
            "CONTEXT_WINDOW_EXCEEDED",
        ),
        ({"message": "slow down", "type": "rate_limit_error"}, "RATE_LIMIT"),
        ({"message": "slow down", "code": 429}, "RATE_LIMIT"),
        ({"message": "slow down", "code": "429"}, "RATE_LIMIT"),
        ({"message": "oops", "type": "server_error"}, "SERVER"),
        ({"message": "oops", "type": "internal_error"}, "SERVER"),
        ({"message": "oops", "code": "overloaded"}, "SERVER"),
        ({"message": "oops", "code": 503}, "SERVER"),
        ({"message": "no", "type": "authentication_error"}, "AUTH"),
        ({"message": "no", "type": "invalid_request_error"}, "INVALID_REQUEST"),
        ({"message": "no", "code": 400}, "INVALID_REQUEST"),
        ({"message": "odd"}, "UNKNOWN"),
        ("just words", "UNKNOWN"),
        ({"odd": 1}, "UNKNOWN"),
        ([1], "UNKNOWN"),
        (True, "UNKNOWN"),
    ],
)
def test_error_objects_are_classified(error: object, code: str) -> None:
    reason = finish_of(translate({"error": error}))
    assert (reason.kind, reason.code) == ("error", code)
    assert reason.message


def test_an_error_object_without_a_wrapper() -> None:
    payload = {"object": "error", "message": "engine died", "code": 500}
    reason = finish_of(translate(chunk({"content": "x"}), payload))
    assert reason.code == "SERVER"
    assert reason.failure == LlmFailure(status=500)
    assert reason.message is not None
    assert "engine died" in reason.message


def test_an_error_wins_over_choices_beside_it() -> None:
    payload = {**chunk({"content": "x"}, "stop"), "error": {"message": "m", "code": 502}}
    assert finish_of(translate(payload)).code == "SERVER"


def test_what_an_error_says_can_be_stored_and_shown() -> None:
    reason = finish_of(translate({"error": {"message": "half \ud83d\x1b[31m" + "x" * 5000}}))
    assert reason.message is not None
    reason.message.encode("utf-8")
    assert reason.message.isprintable()
    assert len(reason.message) < 1200


def test_a_null_error_is_none() -> None:
    assert finish_of(translate({**chunk({"content": "x"}, "stop"), "error": None})).kind == "stop"


# case: F-27
@pytest.mark.parametrize("cut", range(len('{"a": "x"}')))
def test_a_call_cut_by_the_token_limit_is_dropped(cut: int) -> None:
    arguments = '{"a": "x"}'[:cut]
    chunks = translate(chunk(call(0, arguments, id="c1", name="rm")), chunk({}, "length"))
    assembler = BlockAssembler()
    for item in chunks:
        assembler.push(item)
    assert finish_of(chunks) == FinishReason("max-tokens")
    assert assembler.message().content == ()


# case: F-27
def test_a_call_cut_behind_a_lying_stop_is_passed_on_as_it_is() -> None:
    chunks = translate(chunk(call(0, '{"a": "x', id="c1", name="rm")), chunk({}, "stop"))
    # Nothing completes the text: the tool boundary finds that it is no JSON and refuses it.
    assert ends_of(chunks) == [BlockEnd(0, ToolCallBlock("c1", "rm", '{"a": "x'))]


def test_halves_of_a_character_are_joined() -> None:
    first, second = b'{"choices":[{"delta":{"content":"a\\ud83d"}}]}', b'"\\ude80b"'
    rest = b'{"choices":[{"delta":{"content":' + second + b"}}]}"
    chunks = translate(first, rest, chunk({}, "stop"))
    assert [c.text for c in chunks if isinstance(c, TextDelta)] == ["a", "\U0001f680b"]
    assert [c.block for c in ends_of(chunks)] == [TextBlock("a\U0001f680b")]


def test_a_half_opens_its_block_only_with_the_other_half() -> None:
    halves = [
        b'{"choices":[{"delta":{"reasoning_content":"\\ud83d"}}]}',
        b'{"choices":[{"delta":{"reasoning_content":"\\ude80"}}]}',
    ]
    chunks = translate(*halves, chunk({"content": "x"}, "stop"))
    assert chunks[:2] == [BlockStart(0, "reasoning"), ReasoningDelta(0, "\U0001f680")]


def test_halves_of_different_blocks_do_not_meet() -> None:
    chunks = translate(
        b'{"choices":[{"delta":{"reasoning_content":"\\ud83d","content":"\\ud83d"}}]}',
        b'{"choices":[{"delta":{"content":"\\ude80"}}]}',
        b'{"choices":[{"delta":{"reasoning_content":"\\ude00"}}]}',
    )
    assert {c.block for c in ends_of(chunks)} == {
        TextBlock("\U0001f680"),
        ReasoningBlock("\U0001f600"),
    }


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ({"content": "a\ud83d"}, TextBlock("a\ufffd")),
        ({"reasoning_content": "\ud83d"}, ReasoningBlock("\ufffd")),
        ({"content": "\ude80a"}, TextBlock("\ufffda")),
        (call(0, "\ud83d", id="c\ud83d", name="x"), ToolCallBlock("c\ufffd", "x", "\ufffd")),
    ],
)
def test_a_half_without_its_other_half_is_replaced(field: Json, expected: object) -> None:
    chunks = translate(chunk(field))
    assert [c.block for c in ends_of(chunks)] == [expected]


# case: F-28
def test_control_characters_are_carried() -> None:
    text = "".join(map(chr, range(32))) + "\x7f"
    chunks = translate(
        chunk({"content": text}),
        b'{"choices":[{"delta":{"content":"bare\ttab"}}]}',
        chunk(call(0, text, id="c1", name="x")),
    )
    assert [c.block for c in ends_of(chunks)] == [
        TextBlock(f"{text}bare\ttab"),
        ToolCallBlock("c1", "x", text),
    ]


TEXTS = st.one_of(st.none(), st.text(max_size=5), st.characters(categories=["Cs"]))
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "index": st.one_of(st.none(), st.integers(0, 2)),
        "id": st.sampled_from([None, "", "c1", "c2"]),
        "function": st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {}, optional={"name": st.sampled_from([None, "", "x", "y"]), "arguments": TEXTS}
            ),
        ),
    },
)
DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": TEXTS,
        "reasoning_content": TEXTS,
        "tool_calls": st.lists(CALLS, max_size=3),
        "junk": st.integers(),
    },
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "error", "index", "tool_calls"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)
NO_CHOICES: Json = {"choices": []}
PAYLOADS: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        chunk,
        DELTAS,
        st.sampled_from([None, "stop", "length", "tool_calls", "odd"]),
        st.none() | st.dictionaries(st.sampled_from(["prompt_tokens", "x"]), st.integers()),
    ),
    st.sampled_from([NO_CHOICES, {"error": {"message": "m", "type": "server_error"}}]),
    ANY_JSON,
)


# case: TR-24
@settings(deadline=None, max_examples=300)
@given(st.lists(st.lists(PAYLOADS, max_size=4), max_size=5))
def test_whatever_arrives_the_chunks_obey_the_protocol(reads: list[list[object]]) -> None:
    translator = Translator()
    chunks: list[StreamChunk] = []
    for read in reads:
        chunks += translator.push([json.dumps(payload).encode() for payload in read])
        if translator.failure is not None:
            break
    chunks += translator.end()
    assert violations(chunks) == []
    # Every text can be stored: none holds half a character.
    deltas: dict[int, str] = {}
    for item in chunks:
        if isinstance(item, (TextDelta, ReasoningDelta)):
            deltas[item.index] = deltas.get(item.index, "") + item.text
            item.text.encode("utf-8")
        elif isinstance(item, ToolCallDelta):
            deltas[item.index] = deltas.get(item.index, "") + item.arguments_delta
        elif isinstance(item, BlockEnd):
            block = item.block
            whole = block.arguments if isinstance(block, ToolCallBlock) else block
            text = whole if isinstance(whole, str) else getattr(whole, "text", "")
            assert text == deltas[item.index]
            text.encode("utf-8")
