"""Rows that stand for many events."""

from __future__ import annotations

import json
import re
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
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    UnknownBlock,
)
from dsh.session import (
    APPEND,
    AssistantChunk,
    AssistantMessage,
    Session,
    SessionEvent,
    SessionHeader,
    StepStart,
    encode_event,
)
from dsh.session_persistence import FormatUnsupported, SessionCorrupt, SessionSummary
from dsh.session_persistence_jsonl import JsonlBackend
from dsh.session_persistence_jsonl._lines import is_sealed, seed_of, unsealed
from dsh.session_persistence_jsonl._pack import Packer
from dsh.session_persistence_jsonl._rows import read_line

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


def items(*batches: Sequence[SessionEvent]) -> list[list[dict[str, Any]]]:
    """Return what each row of chunks holds."""
    return [row["data"]["chunks"] for row in rows(*batches) if row["type"] == "chunks"]


def test_three_chunks_make_a_row_and_two_do_not() -> None:
    # case: JL-15
    deltas = [TextDelta(0, text) for text in ("he", "ll", "o")]
    assert types(chunks(*deltas)) == ["chunks"]
    assert types(chunks(*deltas[:2])) == ["assistant/chunk"] * 2
    (row,) = rows(chunks(*deltas))
    assert (row["seq"], row["time"]) == (0, 1000)
    assert (row["data"]["turn"], row["data"]["step"]) == (1, 1)
    assert [item["text"] for item in row["data"]["chunks"]] == ["hello"]


@pytest.mark.parametrize(
    "other",
    [ReasoningDelta(0, "x"), TextDelta(1, "x"), ToolCallDelta(0, "c", "x"), BlockStart(0, "text")],
    ids=lambda delta: type(delta).__name__,
)
def test_a_run_is_of_one_kind_and_one_block(other: Any) -> None:
    # case: JL-15
    text = TextDelta(0, "x")
    ((first, between, second),) = items(chunks(text, text, text, other, text, text, text))
    assert first == second == {**first, "type": "text-deltas", "index": 0, "text": "xxx"}
    assert between == json.loads(encode_event(chunks(other)[0]))["data"]["chunk"]


def test_fewer_than_three_deltas_stand_as_they_are() -> None:
    # case: JL-15
    text = TextDelta(0, "x")
    ((*two, other),) = items(chunks(text, text, BlockStart(1, "text")))
    assert two == [{"type": "text-delta", "index": 0, "text": "x"}] * 2
    assert other["type"] == "block-start"


def test_another_step_is_another_row() -> None:
    run = chunks(*[TextDelta(0, "x")] * 3)
    later = tuple(
        replace(event, seq=event.seq + 3, data=AssistantChunk(1, 2, TextDelta(0, "x")))
        for event in run
    )
    assert types((*run, *later)) == ["chunks"] * 2


def test_a_chunk_that_cites_others_stands_alone(disk: Any) -> None:
    # case: JL-15
    log = chunks(*[TextDelta(0, "x")] * 6, BlockEnd(0, TextBlock("x" * 6)))
    log = (*log[:3], replace(log[3], source_event_seqs=(0,)), *log[4:])
    assert types(log) == ["chunks", "assistant/chunk", "chunks"]
    assert items(log)[1][-1]["block"] == {"type": "text", "text": "x" * 6}
    disk.fill("s", log)
    assert disk.read().events == log


def test_an_end_that_repeats_its_deltas_points_to_them() -> None:
    pieces = ["some text, ", "x" * 90, "ü"]
    deltas = chunks(BlockStart(0, "text"), *(TextDelta(0, piece) for piece in pieces))
    end = chunks(BlockEnd(0, TextBlock("".join(pieces))), *[BlockStart(1, "text")] * 2, start=4)
    assert items(deltas, end)[1][0] == {"type": "block-end", "index": 0, "since": 1}
    assert items((*deltas, *end))[0][-3] == {"type": "block-end", "index": 0, "since": 1}


@pytest.mark.parametrize(
    "block",
    [
        TextBlock("x" * 99),
        TextBlock("y" * 100),
        ReasoningBlock("x" * 100),
        ToolCallBlock("c", "n", "x" * 100),
    ],
    ids=["shorter", "another", "of another kind", "a call"],
)
def test_an_end_that_says_something_else_is_written_whole(block: Any) -> None:
    events = chunks(*[TextDelta(0, "x" * 50)] * 2, BlockEnd(0, block))
    (row,) = items(events)
    assert row[-1]["block"]["type"] == block.type


@pytest.mark.parametrize("name", [None, "grep"])
def test_an_end_of_a_call_without_a_name_is_written_whole(disk: Any, name: str | None) -> None:
    block = ToolCallBlock("c", "grep", "xx")
    log = chunks(*[ToolCallDelta(0, "c", "x", name)] * 2, BlockEnd(0, block))
    assert ("block" in items(log)[0][-1]) is (name is None)
    disk.fill("s", log)
    assert disk.read().events == log


CALL = ToolCallBlock("c", "grep", "x" * 90)


def answered(*blocks: Any, content: tuple[Any, ...] | None = None) -> Events:
    """Return the log of an answer of these blocks, and the message that is made of it."""
    deltas: list[Any] = []
    for index, block in enumerate(blocks):
        deltas.append(BlockStart(index, block.type))
        if isinstance(block, ToolCallBlock):
            pieces = (block.arguments[at : at + 30] for at in range(0, len(block.arguments), 30))
            deltas += [ToolCallDelta(index, block.id, piece, block.name) for piece in pieces]
        else:
            delta = TextDelta if isinstance(block, TextBlock) else ReasoningDelta
            pieces = (block.text[at : at + 30] for at in range(0, len(block.text), 30))
            deltas += [delta(index, piece) for piece in pieces]
        deltas.append(BlockEnd(index, block))
    log = chunks(*deltas)
    message = AssistantMessage(1, 1, blocks if content is None else content, TokenUsage(1, 2))
    seqs = tuple(range(len(log)))
    return (*log, SessionEvent(len(log), 9, message, APPEND, seqs))


def test_a_message_points_to_its_blocks(disk: Any) -> None:
    log = answered(TextBlock("some text " * 20), CALL)
    ends = [event.seq for event in log if isinstance(getattr(event.data, "chunk", 0), BlockEnd)]
    plain = json.loads(encode_event(log[-1]))
    del plain["sourceEventSeqs"]
    assert rows(log)[-1] == {
        **plain,
        "type": "message",
        "data": {**plain["data"], "content": ends},
        "sourceEventSeqRanges": [[0, len(log) - 2]],
    }
    disk.fill("s", log[:4], log[4:-1], log[-1:])
    stored = disk.read()
    assert stored.events == log
    last = stored.events[-1].data
    assert last.content[0] is stored.events[ends[0]].data.chunk.block, "the text is there twice"


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ((TextBlock("short"), TextBlock("y" * 200), CALL), [True, False, False]),
        ((TextBlock("y" * 199), CALL, TextBlock("added")), [True, False, True]),
        ((replace(CALL, id="mended"), replace(CALL, name="other")), [True, True]),
        ((ReasoningBlock("y" * 200),), [True]),
        ((UnknownBlock("far-away", {"a": 1}),), [True]),
        ((), []),
    ],
)
def test_a_block_of_a_message_that_is_another_is_written_whole(
    disk: Any, content: tuple[Any, ...], shown: list[bool]
) -> None:
    log = answered(TextBlock("short"), TextBlock("y" * 200), CALL, content=content)
    row = rows(log)[-1]
    assert [isinstance(item, dict) for item in row["data"]["content"]] == shown
    assert row["type"] == ("assistant/message" if all(shown) else "message")
    disk.fill("s", log)
    assert disk.read().events == log


def test_a_message_of_another_step_points_to_nothing() -> None:
    log = answered(TextBlock("y" * 200))
    step = SessionEvent(len(log) - 1, 9, StepStart(1, 2))
    assert types((*log[:-1], step, replace(log[-1], seq=len(log))))[-1] == "assistant/message"
    assert types((*log, log[-1]))[-2:] == ["message", "assistant/message"]


def test_what_was_written_before_a_restart_is_not_pointed_to(disk: Any) -> None:
    log = answered(TextBlock("y" * 200))
    path = disk.fill("s", log[:-1])
    backend = disk.open()
    backend.acquire("s")
    backend.write(SessionHeader(id="s", created_at=1), log[-1:], SessionSummary())
    backend.close()
    assert b'"assistant/message"' in path.read_bytes()
    assert disk.read().events == log


def test_the_rows_that_the_readme_shows_are_read() -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
    shown = [f"{line}\n".encode() for line in re.findall(r'^{"type":.*$', readme, re.MULTILINE)]
    assert all(is_sealed(line, seed_of("s")) for line in shown)
    step, answer, message = (unsealed(line) for line in shown)
    events = list(read_line(step, []))
    log: list[Any] = [*chunks(*[BlockStart(0, "text")] * 12), *read_line(answer, events)]
    assert [event.seq for event in log] == list(range(18))
    (said,) = read_line(message, log)
    assert isinstance(said.data, AssistantMessage)
    assert said.data.content == (log[16].data.chunk.block,)
    assert list(Packer().rows((*log[12:], said))) == [answer, message]


LONG = st.text(max_size=8).map(lambda text: text * 20) | st.text(max_size=8)
BLOCK = (
    st.builds(TextBlock, LONG)
    | st.builds(ReasoningBlock, LONG)
    | st.builds(ToolCallBlock, st.sampled_from(("", "c")), st.sampled_from(("", "n")), LONG)
)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_answer_comes_back(data: st.DataObject) -> None:
    # case: JL-15
    blocks = data.draw(st.lists(BLOCK, max_size=4))
    content = data.draw(st.permutations(blocks) | st.lists(BLOCK, max_size=3))
    log = answered(*blocks, content=tuple(content))
    cuts = data.draw(st.lists(st.integers(1, len(log)), max_size=3, unique=True).map(sorted))
    header = SessionHeader(id="s", created_at=1)
    with TemporaryDirectory() as folder:
        backend = JsonlBackend(Path(folder))
        for start, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
            if start < end:
                backend.write(header, log[start:end], SessionSummary())
        backend.close()
        assert repr(JsonlBackend(Path(folder)).read("s").events) == repr(log)


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


ROW = rows(chunks(*[TextDelta(0, "abc")] * 3, BlockEnd(0, TextBlock("abc" * 3))))[0]
DATA: dict[str, Any] = ROW["data"]
RUN, END = DATA["chunks"]


def placed(change: dict[str, Any], start: int) -> dict[str, Any]:
    """Return the row with a change, as it is where it starts at a seq."""
    text = json.dumps({**ROW, "seq": start, **change})
    return json.loads(text.replace('"since": 0', f'"since": {start}'))


def with_items(*items: Any, **more: Any) -> dict[str, Any]:
    """Return how the row is to be changed to hold these items."""
    return {"data": {**DATA, "chunks": list(items), **more}}


@pytest.mark.parametrize(
    "change",
    [
        {"seq": "0"},
        {"time": None},
        {"later": 1},
        {"data": []},
        {"data": {**DATA, "later": 1}},
        {"data": {key: DATA[key] for key in ("turn", "step", "chunks")}},
        {"data": {**DATA, "turn": 1.0}},
        with_items(),
        with_items(1, END),
        with_items(RUN),
        with_items(RUN, END, gaps=""),
        with_items(RUN, END, gaps=1),
        with_items({**RUN, "later": 1}, END),
        with_items({**RUN, "text": "abcabcab"}, END),
        with_items({**RUN, "text": 1}, END),
        with_items({**RUN, "index": 1.0}, END),
        with_items({**RUN, "sizes": "\u00e9"}, END),
        with_items({**RUN, "sizes": ""}, END),
        with_items({**RUN, "type": "tool-call-deltas"}, END),
        with_items(RUN, {**END, "since": -1}),
        with_items(RUN, {**END, "since": 10**6}),
        with_items(RUN, {**END, "index": 1}),
        with_items(RUN, {**END, "type": "text-delta"}),
        with_items(RUN, {**END, "block": {"type": "text", "text": "x"}}),
        {"type": "message"},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_a_malformed_row_is_damage(
    disk: Any, sealed: Callable[[object], bytes], turn: Events, change: dict[str, Any]
) -> None:
    # case: JL-15
    path = disk.fill("s", turn)
    before = path.read_bytes()
    end = sealed({"type": "turn/end", "seq": len(turn) + 4, "time": 1, "data": {}})
    path.write_bytes(before + sealed(placed({}, len(turn))))
    assert len(disk.read().events) == len(turn) + 4
    path.write_bytes(before + sealed(placed(change, len(turn))))
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
    path.write_bytes(path.read_bytes() + sealed({**ROW, "seq": len(turn) - 1}))
    stored = disk.read()
    assert stored.events == turn
    assert stored.rest is not None


MESSAGE = rows(answered(TextBlock("y" * 200)))[-1]


@pytest.mark.parametrize(
    "change",
    [
        {"data": 1},
        {"data": {**MESSAGE["data"], "content": 1}},
        {"data": {**MESSAGE["data"], "content": [-1]}},
        {"data": {**MESSAGE["data"], "content": [1]}},
        {"data": {**MESSAGE["data"], "content": [10**6]}},
    ],
    ids=lambda change: json.dumps(change)[:60],
)
def test_a_message_that_points_to_no_block_is_not_read(
    disk: Any, sealed: Callable[[object], bytes], change: dict[str, Any]
) -> None:
    log = answered(TextBlock("y" * 200))
    path = disk.fill("s", log[:-1])
    path.write_bytes(path.read_bytes() + sealed({**MESSAGE, **change}))
    stored = disk.read()
    assert stored.events == log[:-1]
    assert stored.rest is not None


def test_a_message_of_blocks_that_are_unknown_is_refused(
    disk: Any, sealed: Callable[[object], bytes]
) -> None:
    log = answered(TextBlock("y" * 200))
    path = disk.fill("s", log[:-1])
    row = sealed({**MESSAGE, "data": {**MESSAGE["data"], "content": [MESSAGE["data"], True]}})
    path.write_bytes(path.read_bytes() + row)
    with pytest.raises(FormatUnsupported):
        disk.read()


def test_what_points_to_a_damaged_line_is_not_damage_itself(disk: Any, turn: Events) -> None:
    log = answered(TextBlock("y" * 200))
    path = disk.fill("s", log[:-1], log[-1:])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"y", b"z", 1)
    path.write_bytes(b"".join(lines))
    report = disk.open().verify("s")
    assert [damage.where for damage in report.damage] == [f"{path}:3"]


def test_numbers_cannot_be_blown_up(
    disk: Any, sealed: Callable[[object], bytes], turn: Events
) -> None:
    path = disk.fill("s", turn)
    (bomb,) = rows(chunks(*[TextDelta(0, "")] * 16_384))
    many = {**bomb["data"], "gaps": bomb["data"]["gaps"] * 50}
    path.write_bytes(path.read_bytes() + sealed({**ROW, "seq": len(turn), "data": many}))
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
