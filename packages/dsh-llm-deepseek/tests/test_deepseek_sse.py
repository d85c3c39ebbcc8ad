"""The decoder of server-sent events, byte by byte."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.llm_deepseek._sse import MAX_EVENT_BYTES, SseDecoder

BODY = (
    ': queued\n\ndata: {"text": "caf\u00e9 \u4f60\u597d \U0001f680"}\n\n'
    "id: 7\nevent: delta\ndata: two\ndata: lines\n\ndata: [DONE]\n\n"
).encode()
PAYLOADS = ['{"text": "caf\u00e9 \u4f60\u597d \U0001f680"}'.encode(), b"two\nlines"]


def decode(*reads: bytes) -> tuple[list[bytes], SseDecoder]:
    decoder = SseDecoder()
    return [payload for read in reads for payload in decoder.feed(read)], decoder


# case: SSE-01
def test_two_events_and_the_terminal_one() -> None:
    payloads, decoder = decode(b'data: {"a":1}\n\ndata: {"b":2}\n\ndata: [DONE]\n\n')
    assert payloads == [b'{"a":1}', b'{"b":2}']
    assert decoder.done


# case: SSE-02
def test_comments_are_counted_and_yield_nothing() -> None:
    payloads, decoder = decode(b": one\n\ndata: a\n\n:two\n: three\n\ndata: b\n\n")
    assert payloads == [b"a", b"b"]
    assert decoder.comments == 3


def test_a_comment_inside_an_event_is_no_part_of_it() -> None:
    payloads, decoder = decode(b"data: a\n: hello\ndata: b\n\n")
    assert payloads == [b"a\nb"]
    assert decoder.comments == 1


# case: SSE-03
@pytest.mark.parametrize("reads", [1, 2])
def test_events_behind_the_terminal_one_are_ignored(reads: int) -> None:
    first, second = b"data: a\n\ndata: [DONE]\n\n", b"data: b\n\n"
    payloads, decoder = decode(*((first + second,) if reads == 1 else (first, second)))
    assert payloads == [b"a"]
    assert decoder.done


# case: SSE-04
def test_a_body_without_the_terminal_event_is_not_done() -> None:
    payloads, decoder = decode(b"data: a\n\n")
    assert payloads == [b"a"]
    assert not decoder.done


# case: SSE-05
def test_an_empty_body_is_not_done() -> None:
    payloads, decoder = decode(b"")
    assert payloads == []
    assert not decoder.done


# case: SSE-06
def test_half_a_line_is_not_delivered() -> None:
    payloads, decoder = decode(b'data: {"a":1}\n\ndata: {"b"')
    assert payloads == [b'{"a":1}']
    assert not decoder.done


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_an_event_without_its_blank_line_is_not_delivered(end: bytes) -> None:
    payloads, _ = decode(b"data: a" + end)
    assert payloads == []


# case: SSE-07
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_terminal_event_needs_its_blank_line(end: bytes) -> None:
    payloads, decoder = decode(b"data: a\n\ndata: [DONE]" + end)
    assert payloads == [b"a"]
    assert not decoder.done


# case: SSE-08
# case: SSE-09
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_every_split_into_two_reads_gives_the_same_payloads(line_end: bytes) -> None:
    body = BODY.replace(b"\n", line_end)
    for offset in range(len(body) + 1):
        payloads, decoder = decode(body[:offset], body[offset:])
        assert payloads == PAYLOADS, offset
        assert decoder.done, offset


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_every_byte_alone_gives_the_same_payloads(line_end: bytes) -> None:
    body = b"\xef\xbb\xbf" + BODY.replace(b"\n", line_end)
    payloads, decoder = decode(*(body[i : i + 1] for i in range(len(body))))
    assert payloads == PAYLOADS
    assert decoder.done


# case: SSE-10
def test_crlf_gives_the_same_payloads_wherever_the_pair_is_cut() -> None:
    body = b"data: a\r\n\r\ndata: b\r\ndata: c\r\n\r\ndata: [DONE]\r\n\r\n"
    for first in range(len(body)):
        for second in range(first, len(body)):
            payloads, decoder = decode(body[:first], body[first:second], body[second:])
            assert payloads == [b"a", b"b\nc"], (first, second)
            assert decoder.done


def test_a_line_end_right_behind_a_pair_that_was_cut_is_one_of_its_own() -> None:
    payloads, _ = decode(b"data: a\r", b"\n", b"\n")
    assert payloads == [b"a"]


def test_mixed_line_ends_are_line_ends() -> None:
    payloads, decoder = decode(b"data: a\r\rdata: b\n\r\ndata: c\r\n\ndata: [DONE]\n\r")
    assert payloads == [b"a", b"b", b"c"]
    assert decoder.done


# case: SSE-11
def test_two_data_lines_are_joined_by_a_line_end() -> None:
    payloads, _ = decode(b"data: one\ndata: two\n\n")
    assert payloads == [b"one\ntwo"]


# case: SSE-12
def test_unicode_line_separators_end_no_line() -> None:
    text = "one\u2028two\u0085three\u2029four\x0bfive\x0csix"
    data = f"data: {json.dumps(text, ensure_ascii=False)}\n\n".encode()
    payloads, _ = decode(data)
    assert [json.loads(payload, strict=False) for payload in payloads] == [text]


# case: SSE-13
def test_a_byte_order_mark_is_dropped_in_however_many_pieces() -> None:
    body = b"\xef\xbb\xbfdata: a\n\n"
    for first in range(5):
        for second in range(first, 5):
            payloads, _ = decode(body[:first], body[first:second], body[second:])
            assert payloads == [b"a"], (first, second)


def test_a_byte_order_mark_at_the_start_of_a_later_read_is_data() -> None:
    payloads, _ = decode(b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\ndata: c\n\n")
    assert payloads == [b"a", b"c"]


def test_half_a_byte_order_mark_is_data() -> None:
    payloads, decoder = decode(b"\xef", b"\xbbx: 1\n\ndata: a\n\n")
    assert payloads == [b"a"]
    assert decoder.comments == 0


# case: SSE-14
@pytest.mark.parametrize("size", [7, 64, 10_000])
def test_an_event_above_the_limit_stops_the_decoder(size: int) -> None:
    decoder = SseDecoder(max_event_bytes=100)
    body = b"data: ok\n\ndata: " + b"x" * 200 + b"\n\ndata: never\n\n"
    payloads = [p for i in range(0, len(body), size) for p in decoder.feed(body[i : i + size])]
    assert payloads == [b"ok"]
    assert decoder.overflow
    assert not decoder.done


def test_events_of_just_the_limit_are_read_whole_and_in_pieces() -> None:
    event = b":c\ndata: a"
    whole = SseDecoder(len(event))
    assert whole.feed(event + b"\n\n") == [b"a"]
    assert not whole.overflow
    pieces = SseDecoder(len(event))
    for _ in range(2):
        assert pieces.feed(event) == []
        assert pieces.feed(b"\n\n") == [b"a"]
    assert not pieces.overflow
    assert SseDecoder(len(event) - 1).feed(event + b"\n\n") == []


def test_a_comment_without_end_counts_against_the_limit() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    for _ in range(10):
        decoder.feed(b":" * 20)
    assert decoder.overflow


def test_many_small_events_in_one_read_are_no_large_event() -> None:
    decoder = SseDecoder(max_event_bytes=100)
    assert decoder.feed(b"data: tiny\n\n" * 50) == [b"tiny"] * 50
    assert not decoder.overflow


def test_the_default_limit_is_16_mib() -> None:
    decoder = SseDecoder()
    half = b"x" * (MAX_EVENT_BYTES // 2 - 10)
    decoder.feed(b"data: " + half)
    decoder.feed(half)
    assert [len(payload) for payload in decoder.feed(b"\n\n")] == [2 * len(half)]


# case: SSE-15
def test_the_space_behind_the_colon_is_optional_and_single() -> None:
    payloads, _ = decode(b"data:a\n\ndata:  b\n\ndata\ndata:c\n\n")
    assert payloads == [b"a", b" b", b"\nc"]


# case: SSE-16
def test_other_fields_are_ignored() -> None:
    payloads, decoder = decode(
        b"event: x\nid: 1\nretry: 5\ndata: a\n\nevent: lonely\n\nfoo\nbar: b\n\ndata: b\n\n"
    )
    assert payloads == [b"a", b"b"]
    assert decoder.comments == 0


@pytest.mark.parametrize("event", [b"data:\n\n", b"data: \n\n", b"data\n\n", b"\n\n\n\n"])
def test_an_event_without_data_is_none(event: bytes) -> None:
    payloads, _ = decode(event + b"data: a\n\n" + event)
    assert payloads == [b"a"]


def test_surplus_blank_lines_do_no_harm() -> None:
    payloads, _ = decode(b"\n\n\ndata: a\n\n\n\n\ndata: b\n\n\n", b"\ndata: c\n\n")
    assert payloads == [b"a", b"b", b"c"]


LINES = st.sampled_from(
    [
        b"data: x",
        b"data: [DONE]",
        b"data:y",
        b": c",
        b"",
        b"",
        b"event: e",
        b"data",
        b"data: \xc3\xa9",
    ]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


def reference(body: bytes) -> tuple[list[bytes], bool]:
    """Follow the format line by line, with nothing clever."""
    lines = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
    payloads: list[bytes] = []
    data: list[bytes] = []
    for line in lines:
        if not line:
            payload = b"\n".join(data)
            data.clear()
            if payload == b"[DONE]":
                return payloads, True
            if payload:
                payloads.append(payload)
        elif line == b"data" or line.startswith(b"data:"):
            data.append(line[5:].removeprefix(b" "))
    return payloads, False


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.tuples(LINES, ENDS), max_size=20),
    st.lists(st.integers(min_value=0, max_value=300), max_size=8),
)
def test_any_stream_in_any_pieces_reads_as_the_format_says(
    lines: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    body = b"".join(line + end for line, end in lines)
    if body.endswith(b"\r"):
        # A lone CR at the very end is a line end here; the reference needs to see one too.
        body += b"\n"
    bounds = [0, *sorted(cuts), len(body)]
    payloads, decoder = decode(*(body[a:b] for a, b in pairwise(bounds)))
    assert (payloads, decoder.done) == reference(body)
