"""What `dsh run` shows of kinds that other wheels declare, and of those nobody knows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsh.agent import TurnOutcome
from dsh.cli._exit_codes import ERROR
from dsh.cli._out import Err, Out
from dsh.cli._outcome import report_outcome
from dsh.cli._view import JsonView, TextView, View
from dsh.llm import (
    BlockEnd,
    ContentBlock,
    LlmFailure,
    StreamChunk,
    TextBlock,
    TextDelta,
    UnknownBlock,
)
from dsh.session import (
    AssistantChunk,
    Failed,
    OtherReason,
    OtherTrigger,
    SessionData,
    SessionEvent,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UnknownData,
    event_to_wire,
)


@dataclass(frozen=True, slots=True)
class Quote(ContentBlock, type="test-cli/quote"):
    """A kind that some wheel adds."""

    alt: str


@dataclass(frozen=True, slots=True)
class Hushed(TurnEndReason, kind="test-cli/hushed"):
    """A reason that some wheel adds."""

    message: str


BLOCKS = (Quote("what was said"), UnknownBlock("test-cli/gone", {"x": 1}))
CHUNKS: tuple[StreamChunk, ...] = (
    TextDelta(0, "so: "),
    BlockEnd(0, TextBlock("so: ")),
    *(BlockEnd(index, block) for index, block in enumerate(BLOCKS, 1)),
)
DATA: tuple[SessionData, ...] = (
    TurnStart(1, OtherTrigger("test-cli/alarm", {})),
    UnknownData("test-cli/thing", {"a": [1]}),
    *(AssistantChunk(1, 1, chunk) for chunk in CHUNKS),
    ToolCall(1, 1, "c", "cite", "{}"),
    ToolResult(1, 1, "c", BLOCKS),
    TurnEnd(1, Hushed("it was late")),
)


def shown(folder: Path, make: type[TextView] | type[JsonView], *, quiet: bool = False) -> list[str]:
    """Return what goes to stdout and to stderr."""
    with (folder / "out").open("w") as stdout, (folder / "err").open("w") as stderr:
        out, err = Out(stdout), Err(stderr)
        view: View = (
            TextView(out, err, quiet=quiet, final_only=False)
            if make is TextView
            else JsonView(out, err)
        )
        for seq, data in enumerate(DATA):
            view.event(SessionEvent(seq, 0, data))
        out.flush()
    return [(folder / name).read_text() for name in ("out", "err")]


def test_text_shows_what_stands_for_a_block(tmp_path: Path) -> None:
    out, err = shown(tmp_path, TextView)
    assert out == "so: "
    assert err.splitlines() == [
        "[test-cli/quote] what was said",
        "[test-cli/gone]",
        "> cite {}",
        "  ok, 1 line: what was said",
    ]
    assert shown(tmp_path, TextView, quiet=True) == ["so: ", ""]


def test_json_has_every_event_as_the_log_has_it(tmp_path: Path) -> None:
    out, err = shown(tmp_path, JsonView)
    assert [json.loads(line) for line in out.splitlines()] == [
        event_to_wire(SessionEvent(seq, 0, data)) for seq, data in enumerate(DATA)
    ]
    assert err == ""


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (Hushed("it was late"), "the turn ended with 'test-cli/hushed': it was late"),
        (OtherReason("gone", {"message": "bye"}), "the turn ended with 'gone': bye"),
        (OtherReason("gone", {"message": 5}), "the turn ended with 'gone'"),
        (OtherReason("gone", {}), "the turn ended with 'gone'"),
    ],
)
def test_a_reason_of_its_own_is_no_success(reason: TurnEndReason, message: str) -> None:
    report = report_outcome(TurnOutcome(1, reason, "text", None, None, None))
    assert report.exit_code == ERROR
    assert report.message == message
    assert report.code is None
    assert report.text == "text"
    assert report.reason["kind"] == reason.kind


def test_how_long_the_provider_asks_to_wait_is_told() -> None:
    busy = Failed(1, "busy", "RATE_LIMIT", LlmFailure(429, 6500.0))
    report = report_outcome(TurnOutcome(1, busy, "", None, None, None))
    assert report.hint == "the provider asks to wait 7 s; then try again"
    busy = Failed(1, "busy", "RATE_LIMIT", LlmFailure(429))
    assert report_outcome(TurnOutcome(1, busy, "", None, None, None)).hint == (
        "wait a moment and try again"
    )
