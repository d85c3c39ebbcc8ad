"""Scripts out of recorded sessions, sidecars, and binding of sessions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from dsh.llm import (
    BlockAssembler,
    LlmAdapter,
    LlmError,
    LlmRequest,
    Message,
    StreamChunk,
    TextBlock,
    to_wire,
)
from dsh.llm_replay import (
    Answer,
    Hang,
    NotConsumedError,
    RecordedSession,
    RecordingAdapter,
    ReplayAdapter,
    ReplayError,
    Row,
    ScriptedAdapter,
    Throw,
    derive_calls,
    dump_script,
    entries_from,
    entry_from,
    error,
    hang,
    hold,
    load_override,
    load_recording,
    load_script,
    override_from,
    recorded,
    save_recording,
    script_of,
    text,
    throw,
    tool_call,
)
from dsh.llm_replay.server import Gate
from dsh.session import (
    AssistantChunk,
    Completed,
    MessageTrigger,
    Session,
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    TodoWrite,
    TurnEnd,
    TurnStart,
    UserSource,
)


def request(session_id: str | None = None, prompt: str = "hi") -> LlmRequest:
    return LlmRequest("m", (Message("user", (TextBlock(prompt),)),), session_id=session_id)


async def say(adapter: ReplayAdapter | ScriptedAdapter, session_id: str | None = None) -> str:
    assembler = BlockAssembler()
    async with aclosing(adapter.stream(request(session_id))) as stream:
        async for chunk in stream:
            assembler.push(chunk)
    return "".join(b.text for b in assembler.blocks() if isinstance(b, TextBlock))


async def drain(adapter: LlmAdapter) -> None:
    async with aclosing(adapter.stream(request())) as stream:
        async for _ in stream:
            pass


def session(*steps: Sequence[Sequence[StreamChunk]], id: str = "s") -> Session:
    """Make a session whose steps hold the given attempts."""
    made = Session(id, header=SessionHeader(id=id, created_at=5))
    made.append(TurnStart(1, MessageTrigger(UserSource())))
    for number, attempts in enumerate(steps, 1):
        made.append(StepStart(1, number))
        for chunks in attempts:
            for chunk in chunks:
                made.append(AssistantChunk(1, number, chunk))
        made.append(StepEnd(1, number))
    made.append(TurnEnd(1, Completed()))
    return made


def of(*answers: Answer, id: str | None = None, created_at: int = 0) -> RecordedSession:
    rows = [row for answer in answers for row in chunk_rows(answer)]
    return RecordedSession(derive_calls(rows), id, created_at)


def chunk_rows(answer: Answer, step: int = 1) -> list[Mapping[str, Any]]:
    assert isinstance(answer, tuple)
    return [
        {"type": "assistant/chunk", "data": {"turn": 1, "step": step, "chunk": to_wire(chunk)}}
        for chunk in answer
    ]


# case: MX-10


def test_each_run_of_chunks_is_a_call_and_attempts_are_apart() -> None:
    failed = error("busy", "RATE_LIMIT", chunks=text("par")[:2])
    made = session([failed, text("one")], [tool_call("c", "bash")])
    calls = derive_calls(made.events)
    assert [call.answer for call in calls] == [failed, text("one"), tool_call("c", "bash")]
    assert [(call.turn, call.step) for call in calls] == [(1, 1), (1, 1), (1, 2)]
    assert all(call.finished for call in calls)


def test_other_events_between_chunks_do_not_break_a_call() -> None:
    made = Session("s")
    made.append(TurnStart(1, MessageTrigger(UserSource())))
    made.append(StepStart(1, 1))
    first, *rest = text("ab")
    made.append(AssistantChunk(1, 1, first))
    made.append(TodoWrite(()))
    for chunk in rest:
        made.append(AssistantChunk(1, 1, chunk))
    assert [call.answer for call in derive_calls(made.events)] == [text("ab")]


def test_a_call_without_finish_needs_a_sidecar() -> None:
    calls = derive_calls(session([text("one")], [text("two")[:3]]).events)
    assert [call.finished for call in calls] == [True, False]
    with pytest.raises(ReplayError, match=r"call 1 \(turn 1, step 2\) has no finish") as caught:
        script_of(calls)
    assert caught.value.code == "UNFINISHED_CALL"
    patched = script_of(
        calls, override_from({"patches": [{"at": 1, "entry": {"kind": "hang", "text": "t"}}]})
    )
    assert patched == [text("one"), hang("t")]


def test_a_log_that_stops_in_the_middle_has_an_unfinished_call() -> None:
    (call,) = derive_calls(chunk_rows(text("cut")[:2]))
    assert not call.finished
    same_place_twice = [*chunk_rows(text("a")[:2]), *chunk_rows(text("b"), step=2)]
    assert [call.finished for call in derive_calls(same_place_twice)] == [False, True]


def test_patches_replace_or_append_and_the_rest_is_refused() -> None:
    calls = of(text("a"), text("b")).calls

    def patched(*places: int) -> list[Any]:
        patches = [{"at": at, "entry": f"p{at}"} for at in places]
        return script_of(calls, override_from({"patches": patches}))

    def plain(content: str) -> Any:
        return entry_from(content)

    assert patched(0) == [plain("p0"), text("b")]
    assert patched(2) == [text("a"), text("b"), plain("p2")]
    for wrong in ((1, 1), (3,), (-1,)):
        with pytest.raises(ReplayError, match="patch") as caught:
            patched(*wrong)
        assert caught.value.code == "BAD_OVERRIDE"


@pytest.mark.parametrize(
    "value",
    [3, {}, {"patches": 1}, {"patches": [1]}, {"patches": [{"at": "0", "entry": "x"}]}, {"x": []}],
)
def test_a_malformed_sidecar_is_refused(value: object, tmp_path: Path) -> None:
    path = tmp_path / "override.json"
    path.write_text(json.dumps(value))
    with pytest.raises(ReplayError) as caught:
        load_override(path)
    assert caught.value.code == "BAD_OVERRIDE"
    assert str(path) in str(caught.value)
    path.write_text("{")
    with pytest.raises(ReplayError, match="not JSON"):
        load_override(path)


def test_a_sidecar_can_be_the_whole_script(tmp_path: Path) -> None:
    path = tmp_path / "override.json"
    path.write_text(json.dumps(["one", {"throw": "down", "code": "SERVER", "status": 503}]))
    script = script_of(of(text("ignored")[:2]).calls, load_override(path))
    assert len(script) == 2
    assert isinstance(script[1], Throw)
    assert script[1].failure is not None
    assert script[1].failure.status == 503


async def test_replay_repeats_the_calls_and_fails_at_the_end() -> None:
    adapter = ReplayAdapter(of(text("one"), text("two")))
    assert [await say(adapter), await say(adapter)] == ["one", "two"]
    adapter.assert_consumed()
    with pytest.raises(ReplayError, match="has 2 calls") as caught:
        await say(adapter)
    assert caught.value.code == "SCRIPT_EXHAUSTED"


async def test_leftovers_and_unbound_recordings_are_reported() -> None:
    adapter = ReplayAdapter(of(text("one"), text("two"), id="p"), [of(text("x"), id="c")])
    await say(adapter, "live")
    with pytest.raises(NotConsumedError, match=r"'p' has 1 calls left; .*'c' was never bound"):
        adapter.assert_consumed()


# case: MX-11


async def test_sessions_are_bound_by_their_first_call() -> None:
    adapter = ReplayAdapter(
        of(text("p1"), text("p2")),
        [of(text("young"), created_at=9), of(text("old"), created_at=3)],
    )
    said = [await say(adapter, live) for live in ("a", "b", "a", "c")]
    assert said == ["p1", "old", "p2", "young"]
    adapter.assert_consumed()
    with pytest.raises(ReplayError, match="all 3 recordings") as caught:
        await say(adapter, "d")
    assert caught.value.code == "UNBOUND_SESSION"


async def test_calls_without_a_session_share_one_recording() -> None:
    adapter = ReplayAdapter(of(text("1"), text("2")), [of(text("3"))])
    assert [await say(adapter), await say(adapter), await say(adapter, "x")] == ["1", "2", "3"]


def test_a_fork_skips_what_it_inherited() -> None:
    parent = session([text("parent")])
    child = Session(
        "child",
        parent.events,
        header=SessionHeader(
            id="child", created_at=7, parent_session="s", seed_length=len(parent.events)
        ),
    )
    child.append(TurnStart(2, MessageTrigger(UserSource())))
    child.append(StepStart(2, 1))
    for chunk in text("child"):
        child.append(AssistantChunk(2, 1, chunk))
    found = recorded(child)
    assert [call.answer for call in found.calls] == [text("child")]
    assert (found.id, found.created_at) == ("child", 7)
    assert recorded(list(child.events), header=child.header) == found
    assert len(recorded(child.events).calls) == 2


async def test_auxiliary_requests_can_be_kept_out_of_the_recording() -> None:
    adapter = ReplayAdapter(of(text("main")), auxiliary={"session-title": text("T")})
    title = LlmRequest("m", (), purpose="session-title")
    async with aclosing(adapter.stream(title)) as stream:
        assert [chunk async for chunk in stream] == list(text("T"))
    assert await say(adapter) == "main"


def test_other_events_can_hold_calls_too() -> None:
    rows: list[Row] = [
        *chunk_rows(text("one")),
        {"type": "compact/summary", "data": {"raw": "short"}},
        *chunk_rows(text("two"), step=2),
    ]

    def extract(row: Row) -> Answer | None:
        if isinstance(row, SessionEvent) or row["type"] != "compact/summary":
            return None
        return text(row["data"]["raw"])

    answers = [call.answer for call in derive_calls(rows, extract=extract)]
    assert answers == [text("one"), text("short"), text("two")]


@pytest.mark.parametrize("envelope", [True, False])
def test_a_recording_survives_its_file(tmp_path: Path, envelope: bool) -> None:
    made = session([text("h\u00e9llo\u2028there")], [tool_call("c", "bash")])
    path = tmp_path / "log.jsonl"
    save_recording(path, made, envelope=envelope)
    assert load_recording(path) == recorded(made)
    assert ('"seq"' in path.read_text(encoding="utf-8")) is envelope
    save_recording(path, made.events)
    assert load_recording(path).calls == recorded(made).calls


def test_the_output_of_a_run_can_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = [
        {"type": "run/start", "sessionId": "s"},
        *chunk_rows(text("hi")),
        {"type": "run/end", "reason": "completed"},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    assert [call.answer for call in load_recording(path).calls] == [text("hi")]


def test_the_header_may_be_a_bare_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    header = {"version": 0, "id": "x", "createdAt": 4, "seedLength": 1}
    rows = [header, chunk_rows(text("a"))[0], *chunk_rows(text("b"))]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    found = load_recording(path)
    assert (found.id, found.created_at) == ("x", 4)
    assert [call.answer for call in found.calls] == [text("b")]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: not an object"),
        ("{}", "event 0 is no object with `type` and `data`"),
        ('{"type": "turn/end"}', "event 0 is no object"),
        ('{"type": "assistant/chunk", "data": {"chunk": {"type": "nope"}}}', "event 0: "),
        ('{"type": "assistant/chunk", "data": {}}', "event 0: "),
    ],
)
def test_a_malformed_row_fails_at_load(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(line)
    with pytest.raises(ReplayError, match=problem) as caught:
        load_recording(path)
    assert caught.value.code == "BAD_RECORDING"
    assert str(path) in str(caught.value)


# Steps as data


def played(step: Any) -> tuple[StreamChunk, ...]:
    entry = entry_from(step)
    assert isinstance(entry, tuple)
    return cast("tuple[StreamChunk, ...]", entry)


def blocks(step: Any) -> tuple[Any, ...]:
    assembler = BlockAssembler()
    for chunk in played(step):
        assembler.push(chunk)
    return assembler.blocks()


def test_a_step_says_text_reasoning_and_tools() -> None:
    assert blocks("hi") == (TextBlock("hi"),)
    found = blocks(
        {
            "reasoning": "r",
            "text": "t",
            "tools": [{"tool": "a"}, {"tool": "b", "arguments": {"x": 1}, "callId": "q"}],
        }
    )
    assert [block.type for block in found] == ["reasoning", "text", "tool-call", "tool-call"]
    assert (found[2].id, found[3].id, found[3].arguments) == ("call_1", "q", '{"x":1}')
    assert blocks({"tool": "a", "call_id": "z"})[0].id == "z"
    entry = entry_from({"text": "x", "usage": {"inputTokens": 1, "outputTokens": 2}})
    assert "input_tokens=1, output_tokens=2" in repr(entry)


def test_a_step_says_how_a_call_fails() -> None:
    assert entry_from({"error": "no", "code": "QUOTA"}) == error("no", "QUOTA")
    failed = played({"error": "no", "text": "par", "retryAfterMs": 5, "status": 429})
    assert len(failed) == 3
    assert "retry_after_ms=5" in repr(failed[-1])
    thinking = entry_from({"throw": "no", "reasoning": "hm", "text": "par"})
    assert isinstance(thinking, Throw)
    assert [chunk.type for chunk in thinking.chunks][-2:] == ["block-start", "text-delta"]
    assert entry_from({"hang": True}) == Hang()


async def test_placeholders_of_a_step_are_filled_before_it_is_cut() -> None:
    adapter = ScriptedAdapter([entry_from({"text": "you said {{fromRequest:hi}}, long enough"})])
    assert await say(adapter) == "you said hi, long enough"
    filled = ScriptedAdapter([entry_from({"throw": "no {{fromRequest:hi}}"})])
    with pytest.raises(LlmError, match="no hi"):
        await say(filled)


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"colour": 1},
        {"tool": "a", "tools": [{"tool": "b"}]},
        {"chunks": [{"type": "nope"}]},
        {"text": "x", "usage": {"inputTokens": 1}},
        3,
    ],
)
def test_a_malformed_step_is_refused(step: Any) -> None:
    with pytest.raises(ReplayError) as caught:
        entry_from(step)
    assert caught.value.code == "BAD_ENTRY"


def test_a_malformed_script_names_the_entry(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text('["fine", {"colour": 1}]')
    with pytest.raises(ReplayError, match="entry 1: colour"):
        load_script(path)
    path.write_text("{}")
    with pytest.raises(ReplayError, match="is not a list of steps"):
        load_script(path)
    path.write_text("nope")
    with pytest.raises(ReplayError, match="is not JSON"):
        load_script(path)


def test_answers_survive_a_script_file(tmp_path: Path) -> None:
    answers: list[Answer] = [
        text("one"),
        throw("down", "SERVER", chunks=text("ab")[:2]),
        hang("w", ready_file=tmp_path / "ready"),
        error("no", "QUOTA"),
    ]
    path = tmp_path / "script.json"
    path.write_text(dump_script(answers), encoding="utf-8")
    assert list(load_script(path)) == answers
    assert entries_from(json.loads(path.read_text(encoding="utf-8"))) == tuple(answers)
    with pytest.raises(ReplayError, match="stands at a gate"):
        dump_script([hold(Gate(), text("x"))])


async def test_recording_an_adapter_gives_a_script() -> None:
    inner = ScriptedAdapter([text("one"), throw("down", "SERVER", chunks=text("ab")[:2])])
    recorder = RecordingAdapter(inner)
    async with aclosing(recorder.stream(request())) as stream:
        assert [chunk async for chunk in stream] == list(text("one"))
    with pytest.raises(LlmError, match="down"):
        await drain(recorder)
    assert list(recorder.answers) == [text("one"), throw("down", chunks=text("ab")[:2])]
    assert recorder.models() == inner.models()
    assert recorder.preflight("m") is None
    assert recorder.call_defaults("m") == inner.call_defaults("m")
    assert recorder.retry_policy("m") == inner.retry_policy("m")
    again = ScriptedAdapter(recorder.answers)
    assert await say(again) == "one"
