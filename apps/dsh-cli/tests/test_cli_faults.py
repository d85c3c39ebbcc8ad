"""Everything that can go wrong on the wire: one message, exit 1, a balanced log."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Serve = Callable[..., ThreadedServer]

FAULTS: dict[str, tuple[wire.Behaviour, str]] = {
    "auth": (wire.auth_error(), "401"),
    "forbidden": (wire.forbidden(), "403"),
    "balance": (wire.http_402(), "402"),
    "rate": (wire.rate_limit(), "429"),
    "quota": (wire.quota_exceeded(), "quota"),
    "invalid": (wire.invalid_request(), "400"),
    "overflow": (wire.context_overflow(), "400"),
    "unknown model": (wire.http_error(404, "Model Not Exist"), "404"),
    "too large": (wire.http_413(), "413"),
    "unprocessable": (wire.http_422(), "422"),
    "server": (wire.server_error(), "500"),
    "overloaded": (wire.service_unavailable(), "503"),
    "redirect": (wire.redirect("http://127.0.0.1:9/"), "307"),
    "html": (wire.http_text(502, "<html>Bad Gateway</html>", content_type="text/html"), "502"),
    "wrong type": (wire.wrong_content_type(), ""),
    "json instead": (wire.json_error_200(), ""),
    "empty": (wire.empty(), ""),
    "empty body": (wire.empty_body(), ""),
    "cut line": (wire.partial_line(), ""),
    "truncated": (wire.truncated(), ""),
    "eof": (wire.stream_eof(), ""),
    "reset before": (wire.connection_reset(), ""),
    "close before": (wire.connection_close(), ""),
    "reset inside": (wire.partial_disconnect(), ""),
    "no JSON": (wire.malformed_json(), ""),
    "odd event": (wire.malformed_event(), ""),
    "error inside": (wire.error_object_midstream(), ""),
    "huge event": (wire.oversized_event(), ""),
}


def balanced_end(events: list[dict[str, Any]]) -> bool:
    kinds = [event["type"] for event in events]
    return all(
        kinds.count(f"{k}/start") == kinds.count(f"{k}/end") for k in ("turn", "step", "run")
    )


def test_a_plugin_that_raises_an_interrupt_as_it_starts_ends_the_run(cli: Cli) -> None:
    (cli.home / "odd.py").write_text(
        "from dsh.core import Plugin\n\n\nclass Odd(Plugin):\n    async def start(self):\n"
        "        raise KeyboardInterrupt\n",
        encoding="utf-8",
    )
    file = cli.home / "odd.yaml"
    file.write_text("version: 1\nplugins: [./odd.py]\n", encoding="utf-8")
    result = cli.run("run", "--config", str(file), "--ephemeral", "go")
    assert result.code == 130
    assert "code raised KeyboardInterrupt; no signal came" in result.stderr


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_wire_is_one_message_and_exit_1(cli: Cli, serve: Serve, name: str) -> None:
    behaviour, word = FAULTS[name]
    serve(behaviour)
    result = cli.run("run", "--json", "go")
    assert result.code == 1
    end = result.events[-1]
    assert end["type"] == "run/end"
    assert end["reason"]["kind"] == "error"
    assert end["reason"]["message"]
    assert end["reason"]["code"]
    assert word in end["reason"]["message"]
    assert end["exitCode"] == 1
    assert balanced_end(result.events)
    said = [line for line in result.stderr.splitlines() if line.startswith("dsh: ")]
    assert len(said) == 1
    assert end["reason"]["code"] in said[0]


def test_a_fault_after_tool_rounds_keeps_what_was_said(cli: Cli, serve: Serve) -> None:
    first = wire.tool_call_success(
        "bash", {"command": "echo hi > f", "description": "d"}, text="Working."
    )
    serve([first, wire.truncated("Half an answer", chunks=2)])
    result = cli.run("run", "go")
    assert result.code == 1
    assert result.stdout.startswith("Working.\nHalf an ")
    assert result.stdout.endswith("\n")
    assert (cli.folder / "f").exists()


@pytest.mark.parametrize(
    "behaviour",
    [
        wire.split_every_byte("café 你好 🚀"),
        wire.crlf_framing("café 你好 🚀"),
        wire.keepalive_then_success("café 你好 🚀"),
        wire.usage_trailing("café 你好 🚀"),
    ],
    ids=["bytes", "crlf", "comments", "usage"],
)
def test_odd_framing_changes_nothing(cli: Cli, serve: Serve, behaviour: wire.Behaviour) -> None:
    serve(behaviour)
    result = cli.run("run", "go")
    assert (result.code, result.stdout) == (0, "café 你好 🚀\n")


def test_an_unreachable_server(cli: Cli) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        cli.env["DEEPSEEK_BASE_URL"] = f"http://127.0.0.1:{port}"
        cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
        result = cli.run("run", "go")
    assert result.code == 1
    assert f"127.0.0.1:{port}" in result.stderr


def test_a_name_that_does_not_resolve(cli: Cli) -> None:
    cli.env["DEEPSEEK_BASE_URL"] = "http://nowhere.invalid"
    cli.env["DEEPSEEK_API_KEY"] = "sk-test-0123456789abcdef"
    result = cli.run("run", "go")
    assert result.code == 1
    assert "nowhere.invalid" in result.stderr


def test_a_silent_server_ends_with_the_idle_timeout(cli: Cli, serve: Serve) -> None:
    serve(wire.stall_before_headers())
    result = cli.run("run", "--set", "plugins.llm-deepseek.config.idle_timeout_s=0.2", "go")
    assert result.code == 1
    assert "[TIMEOUT]" in result.stderr


def test_the_time_limit_ends_the_turn(cli: Cli, serve: Serve) -> None:
    serve(wire.stall("Some text", chunks=1))
    result = cli.run("run", "--timeout", "1.5", "--json", "go")
    assert result.code == 1
    end = result.events[-1]
    assert end["reason"] == {"kind": "aborted", "reason": "timeout"}
    assert "the time limit of 1.5 s is over" in end["message"]
    assert balanced_end(result.events)
