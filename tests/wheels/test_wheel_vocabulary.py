"""A wheel with words of its own: a log written with it outlives it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

PROJECT = Path(__file__).parent / "projects" / "acme-vocabulary"
URL = "https://acme.test/1"
CITATION = {
    "type": "acme/citation",
    "sourceUrl": URL,
    "title": "It rains",
    "alt": f"[It rains]({URL})",
}
UNDECLARED = [
    "block type acme/citation",
    "event type acme-feed/polled",
    "message source acme-feed",
    "turn trigger acme-poll",
    "turn-end reason acme-quiet",
]

READ = """
import json, sys
from dsh.core import json as djson
from dsh.session import Session, event_from_wire, event_to_wire, undeclared_kinds

lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
wires = [djson.loads(line) for line in lines]
kept = [(line, wire) for line, wire in zip(lines, wires) if not wire["type"].startswith("run/")]
events = [event_from_wire(wire) for line, wire in kept]
session = Session("again")
for event in events:
    session.append(event.data, event.surface_op, event.source_event_seqs)
print(json.dumps({
    "same": [djson.dumps(event_to_wire(event)).decode() for event in events]
        == [line for line, wire in kept],
    "undeclared": undeclared_kinds(events),
    "classes": sorted({type(event.data).__name__ for event in events}),
    "turns": session.last_turn,
    "history": len(session.derive_messages()),
}))
"""


def test_a_log_outlives_the_wheel_that_wrote_in_it(
    dsh: Any, playing: Callable[..., str], tmp_path: Path
) -> None:
    plain = playing({"tool": "cite", "arguments": {"title": "It rains"}})
    row = json.dumps({"use": "acme-feed", "config": {"items": {"It rains": URL}}})
    dsh.install(PROJECT)
    dsh.write_config(f"{plain}  - {row}\n")
    log = tmp_path / "log.jsonl"
    done = dsh.run("dsh", "run", "what is new?", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    log.write_text(done.stdout, encoding="utf-8")

    events = [json.loads(line) for line in done.stdout.splitlines()]

    def of(kind: str) -> list[Any]:
        return [event["data"] for event in events if event["type"] == kind]

    assert [data["trigger"]["kind"] for data in of("turn/start")] == ["acme-poll", "message"]
    assert [data["reason"]["kind"] for data in of("turn/end")] == ["acme-quiet", "completed"]
    assert of("acme-feed/polled") == [{"feedName": "news", "freshItems": 1}]
    (context,) = of("context/message")
    assert context == {
        "content": [CITATION],
        "source": {"kind": "acme-feed", "feedName": "news"},
    }
    (result,) = of("tool/result")
    assert result["content"] == [CITATION]

    with_it = json.loads(dsh.script("import acme_vocabulary" + READ, str(log)))
    assert with_it["same"]
    assert with_it["undeclared"] == []
    assert "FeedPolled" in with_it["classes"]

    dsh.uninstall("acme-vocabulary")
    refused = dsh.run("dsh", "run", "what is new?")
    assert refused.returncode == 2
    assert "acme-feed" in refused.stderr

    without = json.loads(dsh.script(READ, str(log)))
    assert without["same"]
    assert without["undeclared"] == UNDECLARED
    assert "FeedPolled" not in without["classes"]
    assert "UnknownData" in without["classes"]
    for key in ("turns", "history"):
        assert without[key] == with_it[key]

    dsh.write_config(f"""\
version: 1
model: replay/scripted
plugins:
  - {{use: llm-replay, config: {{recording: {json.dumps(str(log))}}}}}
""")
    again = dsh.run("dsh", "run", "what is new?")
    assert again.returncode == 0, again.stdout + again.stderr
    assert again.stdout == "finished\n"
