"""Rows that stand for many events."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh.llm import (
    BlockEnd,
    BlockStart,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Session,
    SessionEvent,
    SessionHeader,
    encode_event,
)
from dsh.session_persistence import SessionCorrupt, SessionSummary
from dsh.session_persistence_jsonl import JsonlBackend
from dsh.session_persistence_jsonl._pack import Packer

Events = tuple[SessionEvent, ...]


def chunks(*deltas: Any, start: int = 0, gap: int = 7) -> Events:
    return tuple(
        SessionEvent(start + offset, 1000 + gap * offset, AssistantChunk(1, 1, delta))
        for offset, delta in enumerate(deltas)
    )


def rows(*batches: Sequence[SessionEvent]) -> list[dict[str, Any]]:
    packer = Packer()
    return [json.loads(row) for batch in batches for row in packer.rows(batch)]


def types(*batches: Sequence[SessionEvent]) -> list[str]:
    return [row["type"] for row in rows(*batches)]


def test_three_deltas_make_a_row_and_two_do_not() -> None:
    # case: JL-15
    deltas = [TextDelta(0, text) for text in ("he", "ll", "o")]
    assert types(chunks(*deltas)) == ["text-chunks"]
    assert types(chunks(*deltas[:2])) == ["assistant/chunk"] * 2
    (row,) = rows(chunks(*deltas))
    assert (row["seq"], row["time"], row["data"]["text"]) == (0, 1000, "hello")


@pytest.mark.parametrize(
    "other",
    [ReasoningDelta(0, "x"), TextDelta(1, "x"), ToolCallDelta(0, "c", "x"), BlockStart(0, "text")],
    ids=lambda delta: type(delta).__name__,
)
def test_a_row_holds_one_kind_of_one_block(other: Any) -> None:
    # case: JL-15
    text = TextDelta(0, "x")
    assert types(chunks(text, text, text, other, text, text, text)) == [
        "text-chunks",
        "assistant/chunk",
        "text-chunks",
    ]


def test_another_step_is_another_row() -> None:
    run = chunks(*[TextDelta(0, "x")] * 3)
    later = tuple(
        replace(event, seq=event.seq + 3, data=AssistantChunk(1, 2, TextDelta(0, "x")))
        for event in run
    )
    assert types((*run, *later)) == ["text-chunks"] * 2


def test_an_end_that_repeats_its_deltas_points_to_them() -> None:
    pieces = ["some text, ", "x" * 90, "ü"]
    deltas = chunks(BlockStart(0, "text"), *(TextDelta(0, piece) for piece in pieces))
    end = chunks(BlockEnd(0, TextBlock("".join(pieces))), start=4)
    assert rows(deltas, end)[-1] == {
        "type": "block-end",
        "seq": 4,
        "time": 1000,
        "data": {"turn": 1, "step": 1, "index": 0, "since": 1, "block": {"type": "text"}},
    }


@pytest.mark.parametrize(
    "block",
    [TextBlock("x" * 99), TextBlock("y" * 100), ToolCallBlock("c", "n", "x" * 100)],
    ids=["shorter", "another", "a call"],
)
def test_an_end_that_says_something_else_is_written_whole(block: Any) -> None:
    events = chunks(*[TextDelta(0, "x" * 50)] * 2, BlockEnd(0, block))
    assert types(events)[-1] == "assistant/chunk"


def test_a_message_cites_ranges() -> None:
    session = Session("s", enclosed=False)
    for _ in range(10):
        session.append(AssistantChunk(1, 1, TextDelta(0, "x")))
    event = session.append(AssistantMessage(1, 1, ()), APPEND, (0, 1, 2, 3, 4, 7, 8, 9))
    (row,) = rows((event,))
    assert row["sourceEventSeqRanges"] == [[0, 4], [7, 9]]
    few = replace(event, source_event_seqs=(1, 5, 9))
    assert rows((few,))[0]["sourceEventSeqs"] == [1, 5, 9]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_log_comes_back(logs: st.SearchStrategy[Events], data: st.DataObject) -> None:
    # case: JL-15
    log = data.draw(logs)
    if not log:
        return
    cuts = data.draw(st.lists(st.integers(1, len(log)), max_size=3).map(sorted))
    times = data.draw(
        st.lists(st.integers(-(2**53) + 1, 2**53 - 1), min_size=len(log), max_size=len(log))
    )
    log = tuple(replace(event, time=time) for event, time in zip(log, times, strict=True))
    options = {"packed": data.draw(st.booleans()), "compressed": data.draw(st.booleans())}
    header = SessionHeader(id="s", created_at=1)
    with TemporaryDirectory() as folder:
        backend = JsonlBackend(Path(folder), **options)
        for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
            if start < end:
                backend.write(header, log[start:end], SessionSummary())
        backend.close()
        stored = JsonlBackend(Path(folder)).read("s")
        assert repr(stored.events) == repr(log)
        assert stored.rest is None


def test_without_packing_there_is_one_event_a_line(disk: Any, two_turns: Events) -> None:
    # case: JL-16
    path = disk.fill("s", two_turns[:9], two_turns[9:], packed=False)
    lines = path.read_bytes().split(b"\n")
    assert [line[:-18] + b"}" for line in lines[1:-1]] == [encode_event(e) for e in two_turns]


def test_packed_and_plain_lines_may_stand_in_one_file(disk: Any) -> None:
    # case: JL-15
    log = chunks(*[TextDelta(0, "abc")] * 12)
    disk.fill("s", log[:6], packed=False)
    backend = disk.open(packed=True)
    backend.acquire("s")
    backend.write(SessionHeader(id="s", created_at=1), log[6:], SessionSummary())
    backend.close()
    assert disk.read().events == log


LINE: dict[str, Any] = {
    "type": "text-chunks",
    "seq": 0,
    "time": 1,
    "data": rows(chunks(*[TextDelta(0, "abc")] * 3))[0]["data"],
}


@pytest.mark.parametrize(
    "change",
    [
        {"seq": "0"},
        {"time": None},
        {"later": 1},
        {"data": []},
        {"data": {**LINE["data"], "later": 1}},
        {"data": {key: LINE["data"][key] for key in ("turn", "step", "index", "text", "sizes")}},
        {"data": {**LINE["data"], "text": "abcabcab"}},
        {"data": {**LINE["data"], "text": 1}},
        {"data": {**LINE["data"], "index": 1.0}},
        {"data": {**LINE["data"], "sizes": "\u00e9"}},
        {"data": {**LINE["data"], "sizes": ""}},
        {"data": {**LINE["data"], "gaps": LINE["data"]["sizes"]}},
        {"type": "tool-call-chunks"},
        {"type": "block-end"},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_a_malformed_row_is_damage(
    disk: Any, sealed: Callable[[object], bytes], turn: Events, change: dict[str, Any]
) -> None:
    # case: JL-15
    path = disk.fill("s", turn)
    row = sealed({**LINE, "seq": len(turn), **change})
    end = sealed({"type": "turn/end", "seq": len(turn) + 3, "time": 1, "data": {}})
    path.write_bytes(path.read_bytes() + row)
    stored = disk.read()
    assert stored.events == turn
    assert stored.rest is not None
    path.write_bytes(path.read_bytes() + end)
    with pytest.raises(SessionCorrupt, match=r"session\.jsonl:\d+"):
        disk.read()


def test_a_gap_inside_a_row_drops_all_of_it(
    disk: Any, sealed: Callable[[object], bytes], turn: Events
) -> None:
    # case: JL-15
    path = disk.fill("s", turn)
    path.write_bytes(path.read_bytes() + sealed({**LINE, "seq": len(turn) - 1}))
    stored = disk.read()
    assert stored.events == turn
    assert stored.rest is not None


def test_numbers_cannot_be_blown_up(
    disk: Any, sealed: Callable[[object], bytes], turn: Events
) -> None:
    path = disk.fill("s", turn)
    bomb = rows(chunks(*[TextDelta(0, "")] * 16_384))[0]["data"]
    many = {**bomb, "gaps": bomb["gaps"] * 50}
    path.write_bytes(path.read_bytes() + sealed({**LINE, "seq": len(turn), "data": many}))
    assert disk.read().events == turn
    cited: dict[str, Any] = {
        "type": "assistant/message",
        "seq": len(turn),
        "time": 1,
        "data": {"turn": 1, "step": 1, "content": []},
        "surfaceOp": "append",
        "sourceEventSeqRanges": [[0, 10**12]],
    }
    path = disk.fill("t", turn)
    path.write_bytes(path.read_bytes() + sealed(cited))
    assert disk.read("t").events == turn


def test_a_long_answer_takes_little_more_than_its_text(disk: Any) -> None:
    text = [f"{number:x}" for number in range(1000, 9000)]
    log = chunks(*(TextDelta(0, piece) for piece in text), gap=20)
    size = disk.fill("s", log).stat().st_size
    assert size < 1.2 * len("".join(text))
