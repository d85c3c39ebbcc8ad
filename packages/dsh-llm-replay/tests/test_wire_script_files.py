"""Scripts by name and from files, and the server in a thread and as a program."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import httpx
import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import BEHAVIOURS, Behaviour, Gates, ScriptError, WireRequest
from dsh.llm_replay.server.__main__ import main

BODY = {"messages": [{"role": "user", "content": "hi"}]}
NEEDED: dict[str, dict[str, Any]] = {
    "tool_calls": {"calls": [("c", "t", "{}")]},
    "finish_reason": {"reason": "length"},
    "http_error": {"status": 418},
    "http_text": {"status": 502},
    "http_json": {"status": 500, "value": {}},
    "redirect": {"location": "/x"},
    "oversized_event": {"size": 100},
}


@pytest.mark.parametrize("name", sorted(BEHAVIOURS))
def test_every_named_behaviour_builds_and_has_its_name(name: str) -> None:
    built = wire.behaviour(name, **NEEDED.get(name, {}))
    if name not in {"http_error", "http_text", "http_json"}:
        assert built.name == name
    assert BEHAVIOURS[name].__doc__


def test_the_random_mixture_names_behaviours() -> None:
    assert set(wire.RANDOM_WEIGHTS) <= set(BEHAVIOURS)
    assert sum(wire.RANDOM_WEIGHTS.values()) == 100


def test_unknown_names_and_arguments_are_refused() -> None:
    with pytest.raises(ScriptError, match="unknown behaviour 'sucess'; known are"):
        wire.behaviour("sucess")
    with pytest.raises(ScriptError, match=r"'success'.*colour"):
        wire.behaviour("success", colour="red")
    with pytest.raises(ScriptError, match="unknown behaviour 'nope'"):
        wire.WireServer(["nope"])
    with pytest.raises(ScriptError, match="unknown behaviour 'nope'"):
        wire.WireServer().append(wire.RandomBehaviour({"nope": 1}))


def test_modifiers_refuse_what_cannot_be() -> None:
    with pytest.raises(ValueError, match="only 6 stream payloads, not 99"):
        wire.success().cut(after=99)
    with pytest.raises(ValueError, match="at least 1"):
        wire.success().split(0)
    with pytest.raises(ValueError, match="at least 1"):
        wire.success(chunk_size=0)
    with pytest.raises(ValueError, match="cannot be split at offsets"):
        wire.slow_success().split_at(3)
    with pytest.raises(ValueError, match="before the head"):
        Behaviour("x", before=(wire.Send(b"y"),))
    with pytest.raises(ValueError, match="sends only"):
        Behaviour("x", (wire.Stall(),), sized=True)


def test_cuts_and_splits_keep_the_bytes() -> None:
    whole = wire.success("caf\u00e9 \u4f60")
    for offset in range(len(whole.body) + 1):
        halves = whole.split_at(offset)
        assert halves.body == whole.body
        assert len(halves.writes) == (1 if offset in {0, len(whole.body)} else 2)
        assert whole.cut_bytes(offset).body == whole.body[:offset]


def test_a_script_file_says_everything_an_entry_can_be(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    entries = [
        "success",
        "random",
        {"text": "hello"},
        {"tool": "bash", "arguments": {"command": "ls"}, "text": "see"},
        {"behaviour": "rate_limit", "retry_after": 3},
        {"text": "slow", "pace": 0.001, "delay": 0.001, "split": 2},
        {"text": "held", "hold": "g", "holdAfter": 2},
        {"random": {"success": 1}},
        {"rules": [{"when": "tests? pass", "then": {"text": "done"}}, {"then": "server_error"}]},
    ]
    path.write_text(json.dumps({"script": entries, "token": "t", "repeatLast": True, "seed": 4}))
    gates = Gates()
    script = wire.load_script(path, gates.get)
    assert (script.token, script.repeat_last, script.seed) == ("t", True, 4)
    assert len(script.entries) == len(entries)
    assert [gate.name for gate in gates] == ["g"]
    rules = script.entries[-1]
    assert callable(rules)
    answer = rules(request("all tests pass now"))
    assert isinstance(answer, Behaviour)
    assert b"done" in answer.body
    assert rules(request("no")) == "server_error"
    path.write_text('["success"]')
    assert wire.load_script(path, gates.get).entries == ("success",)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("nope", "not JSON"),
        ('"success"', "a list of entries"),
        ('{"script": [], "colour": 1}', "unknown fields colour"),
        ('["success", "sucess"]', "entry 2: unknown behaviour"),
        ("[3]", "entry 1: an entry is a string or an object"),
        ('[{"split": 1}]', "entry 1: an entry needs one of"),
        ('[{"rules": [{"when": "(", "then": "success"}]}]', "not a regular expression"),
        ('[{"rules": [{"then": {"random": {}}}]}]', "a name or a behaviour"),
    ],
)
def test_a_malformed_script_file_names_the_place(
    tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "script.json"
    path.write_text(content)
    with pytest.raises(ScriptError, match=message) as caught:
        wire.load_script(path, Gates().get)
    assert str(path) in str(caught.value)


def test_rules_without_a_match_fail_loudly() -> None:
    (rules,) = wire.parse_entries([{"rules": [{"when": "x", "then": "success"}]}], Gates().get)
    assert callable(rules)
    with pytest.raises(ScriptError, match="no rule matches"):
        rules(request("y"))


def test_a_server_in_a_thread_serves_a_blocking_client() -> None:
    script = ["success", wire.success().hold(gate := wire.Gate("g"), after=1)]
    with wire.serve_in_thread(script) as server, httpx.Client() as client:
        url = server.url + "/chat/completions"
        assert client.post(url, json=BODY).status_code == 200
        assert server.wait_finished(1) == "completed"
        with client.stream("POST", url, json=BODY) as response:
            server.wait_reached(gate)
            assert server.wait_attempt(2).outcome == "active"
            server.open(gate)
            assert response.read().endswith(b"[DONE]\n\n")
        server.assert_consumed()
        server.append("rate_limit")
        assert client.post(url, json=BODY).status_code == 429
        assert [a.behaviour for a in server.attempts] == ["success", "success", "rate_limit"]
        assert server.connections == 1
        server.refuse()
        with pytest.raises(httpx.ConnectError):
            client.post(url, json=BODY)
        server.listen()
        server.append(wire.success().hold(server.gate("h"), after=1))
        with client.stream("POST", url, json=BODY) as response:
            server.wait_reached("h")
            server.open("h")
            response.read()
        with pytest.raises(TimeoutError):
            server.wait_attempt(99, timeout=0.01)


@contextlib.contextmanager
def program(*arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "dsh.llm_replay.server", "--port", "0", *arguments]
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, encoding="utf-8"
    )
    with child:
        try:
            assert child.stdout is not None
            yield child, str(json.loads(child.stdout.readline())["url"])
        finally:
            child.kill()


def test_the_program_serves_a_script_file_and_records_attempts(tmp_path: Path) -> None:
    script, record = tmp_path / "script.json", tmp_path / "record.jsonl"
    script.write_text(json.dumps([{"text": "from a file", "hold": "g"}]))
    with (
        program("--script", str(script), "--record", str(record)) as (child, url),
        httpx.Client() as client,
    ):
        with client.stream("POST", url + "/chat/completions", json=BODY) as response:
            assert httpx.post(url + "/__wire__/open/g").status_code == 200
            assert b"from a" in response.read()
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    (line,) = record.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["outcome"] == "completed"


def test_the_program_can_refuse_at_first_and_end_with_its_input() -> None:
    with program("--refuse", "0.001", "--exit-with-stdin", "--behaviour", "empty") as (child, url):
        transport = httpx.HTTPTransport(retries=10)
        with httpx.Client(transport=transport) as client:
            assert client.post(url + "/chat/completions", json=BODY).status_code == 200
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait(10) == 0


def test_the_program_serves_a_recorded_session(tmp_path: Path) -> None:
    log = tmp_path / "log.jsonl"
    chunks = [
        {"type": "block-start", "index": 0, "blockType": "text"},
        {"type": "text-delta", "index": 0, "text": "recorded"},
        {"type": "block-end", "index": 0, "block": {"type": "text", "text": "recorded"}},
        {"type": "finish", "reason": {"kind": "stop"}},
    ]
    rows = [{"type": "assistant/chunk", "data": {"turn": 1, "step": 1, "chunk": c}} for c in chunks]
    log.write_text("\n".join(json.dumps(row) for row in rows))
    with program("--recording", str(log)) as (_, url):
        assert "recorded" in httpx.post(url + "/chat/completions", json=BODY).text


def test_the_program_refuses_a_bad_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--script", str(tmp_path / "missing.json")]) == 2
    assert main(["--behaviour", "sucess"]) == 2
    bad = tmp_path / "log.jsonl"
    bad.write_text("{}")
    assert main(["--recording", str(bad)]) == 2
    errors = capsys.readouterr().err
    assert "missing.json" in errors
    assert "unknown behaviour 'sucess'" in errors
    assert "log.jsonl" in errors


def test_the_server_needs_neither_the_model_seam_nor_pydantic() -> None:
    code = (
        "import sys, dsh.llm_replay.server\n"
        "names = [m for m in sys.modules if m.startswith(('dsh.', 'pydantic', 'httpx'))]\n"
        "print([m for m in names if not m.startswith('dsh.llm_replay')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def request(text: str) -> WireRequest:
    return WireRequest(1, "/", {}, {"messages": [{"role": "user", "content": text}]})
