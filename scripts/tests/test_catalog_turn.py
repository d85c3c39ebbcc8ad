"""The page of a turn is drawn from what happens in a run, and is the same on every machine."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from catalog import recorded_turn
from catalog.shapes import Workspace

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import pickle, sys
sys.path.insert(0, "scripts")
from catalog.recorded_turn import render
sys.stdout.buffer.write(render(pickle.load(sys.stdin.buffer)).encode())
"""


@pytest.fixture(scope="module")
def turn() -> Any:
    """The module that records."""
    return recorded_turn


@pytest.fixture(scope="module")
def moments(turn: Any) -> Any:
    return turn.record()


def labels(moments: Any, phase: str) -> list[str]:
    """Return what happened in a part of the run, entries that repeat once."""
    found = [moment.label for moment in moments if moment.phase == phase]
    return found[:1] + [after for before, after in pairwise(found) if after != before]


def test_both_event_loops_give_the_same_turn(turn: Any, moments: Any) -> None:
    assert turn.record("trio") == moments


def test_the_turn_is_all_there(moments: Any) -> None:
    happened = labels(moments, "turn")
    assert happened[:5] == [
        "agent/queued", "agent/status: running", "turn/start", "agent/prompt-submit",
        "user/message",
    ]  # fmt: skip
    tool = happened.index("tool/call")
    assert happened[tool : tool + 7] == [
        "tool/call", "tools/pre-execute", "session/flush", "tools/execute", "weather",
        "tools/post-execute", "tools/result",
    ]  # fmt: skip
    assert happened[-4:] == [
        "turn/end", "session/flush", "agent/status: idle", "the turn is over: It rains in Paris.",
    ]  # fmt: skip
    assert [moment.kind for moment in moments].count("model") == 2
    assert happened.count("step/start") == happened.count("step/end") == 2


def test_the_agent_is_made_before_and_leaves_after(moments: Any) -> None:
    assert "session/created" in labels(moments, "before")
    assert labels(moments, "before")[-2:] == ["agent/created", "agent/session-start"]
    assert labels(moments, "after")[0] == "agent/status: disposed"
    assert labels(moments, "after")[-1] == "session/disposed"


def test_who_is_at_work_is_read_from_the_stack(moments: Any) -> None:
    lanes = {moment.name: [hop.lane for hop in moment.chain] for moment in moments}
    assert lanes["agent/queued"][0] == "front door"
    assert lanes["llm/stream"][-1] == "dsh-llm"
    assert lanes["stream"][-2:] == ["dsh-llm", "dsh-llm-replay"]
    assert lanes["weather"][-2:] == ["dsh-tools", "tool"]
    assert lanes["tools/execute"][-2:] == ["dsh-agent-loop", "dsh-tools"]
    assert lanes["turn/start"][-2:] == ["dsh-agent-loop", "dsh-session"]
    # the loop runs in a task of its own, on nobody's behalf
    assert lanes["turn/start"][0] != "front door"


def test_everything_is_drawn_in_order_and_repeats_once(turn: Any, moments: Any) -> None:
    drawn = turn.diagram([moment for moment in moments if moment.phase == "turn"])
    lines = [line.strip() for line in drawn.splitlines()]
    assert lines[:3] == ["```mermaid", "sequenceDiagram", "autonumber"]
    entries = [line.split(": ", 1)[1] for line in lines if "->>lane_dsh_session: " in line]
    assert entries[:4] == ["turn/start", "user/message", "step/start", "request/header"]
    assert entries.count("assistant/chunk") == 2
    chunks = lines.index("lane_dsh_agent_loop->>lane_dsh_session: assistant/chunk")
    assert lines[chunks - 1].startswith("loop ")
    assert lines[chunks + 1] == "end"
    assert "lane_dsh_tools->>lane_tool: weather()" in lines
    assert lines[-2] == "lane_dsh_agent-->>lane_front_door: It rains in Paris."
    for lane in turn.LANES.values():
        assert any(line.endswith(f" as {lane}") for line in lines), lane


def test_a_call_that_goes_on_is_drawn_once(turn: Any) -> None:
    def moment(name: str, *hops: tuple[str, str]) -> Any:
        chain = tuple(turn.Hop(*hop) for hop in hops)
        return turn.Moment("event", "turn", name, "emit", "", chain)

    loop = ("dsh-agent-loop", "drive()")
    begin, run = ("dsh-tools", "begin()"), ("dsh-tools", "run()")
    drawn = turn.diagram(
        [
            moment("one", loop, begin),
            moment("two", loop, begin),
            moment("three", loop, run),
            moment("four", loop),
            moment("five", loop, run),
        ]
    )
    assert [line.strip() for line in drawn.splitlines()[6:-1]] == [
        "lane_dsh_agent_loop->>lane_dsh_tools: begin()",
        "lane_dsh_tools->>lane_plugins: one (emit)",
        "lane_dsh_tools->>lane_plugins: two (emit)",
        "lane_dsh_agent_loop->>lane_dsh_tools: run()",
        "lane_dsh_tools->>lane_plugins: three (emit)",
        "lane_dsh_agent_loop->>lane_plugins: four (emit)",
        "lane_dsh_agent_loop->>lane_dsh_tools: run()",
        "lane_dsh_tools->>lane_plugins: five (emit)",
    ]


def test_the_page_is_the_same_in_another_process_and_surrounding(workspace: Workspace) -> None:
    read = pickle.dumps(workspace)

    def page(**more: str) -> bytes:
        command = [sys.executable, "-c", SCRIPT]
        environment = {**os.environ, **more}
        return subprocess.run(
            command, cwd=ROOT, env=environment, input=read, capture_output=True, check=True
        ).stdout

    one = page(PYTHONHASHSEED="1", DSH_INVARIANTS="full", HOME="/nowhere")
    assert one == page(PYTHONHASHSEED="2", DSH_INVARIANTS="basic", TZ="Asia/Tokyo")
    assert str(ROOT).encode() not in one
    assert b"| [`tools/execute`](events-and-services.md" in one


def test_a_participant_without_a_lane_makes_no_page(turn: Any) -> None:
    stranger = (turn.Hop("dsh-news", "tell()"),)
    with pytest.raises(ValueError, match="dsh-news takes part in the turn and has no lane"):
        turn.diagram([turn.Moment("event", "turn", "news/told", "emit", "", stranger)])


def test_a_run_that_goes_wrong_makes_no_page(turn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def answers_at_once(*call: object) -> Any:
        return turn.text("There is nothing to call.")

    monkeypatch.setattr(turn, "tool_call", answers_at_once)
    with pytest.raises(ValueError, match="the recorded turn went wrong"):
        turn.record()
