"""The embedder's side, against the real wire: the documented example, and leaving runs early."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer, WireServer
from dsh.loader import open_app
from dsh.tools import tool

Cli = Any
Serve = Callable[..., ThreadedServer]
README = Path(__file__).parents[3] / "packages" / "dsh-loader" / "README.md"


def deployment(url: str) -> dict[str, object]:
    config = {"base_url": url, "api_key": "none"}
    return {
        "model": "deepseek/deepseek-flash",
        "plugins": [{"use": "llm-deepseek", "config": config}, "tool-bash"],
    }


@pytest.mark.skipif(not README.exists(), reason="only in the repository")
def test_the_example_of_the_readme_runs(cli: Cli, serve: Serve) -> None:
    (example,) = re.findall(
        r"```python\n(from dsh\.loader import .*?)```", README.read_text(), re.S
    )
    assert len([line for line in example.splitlines() if line.strip()]) <= 15
    arguments = {"command": "ls", "description": "d"}
    serve([wire.tool_call_success("bash", arguments), wire.success("It is empty.")])
    done = subprocess.run(
        [sys.executable, "-c", example],
        cwd=cli.folder,
        env=cli.env,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stderr
    assert lines[0] == "turn/start"
    assert "tool/result" in lines
    assert lines[-1] == "It is empty."


@tool
def weather(city: str) -> str:
    """Tell the weather of a city.

    Args:
        city: Where.
    """
    return f"rain in {city}"


async def test_an_agent_can_bring_tools_of_its_own(tmp_path: Path) -> None:
    script = [wire.tool_call_success("weather", {"city": "Oslo"}), wire.success("Take a coat.")]
    async with WireServer(script) as server, open_app(deployment(server.url)) as app:
        async with app.agent(cwd=tmp_path, tools=[weather]) as agent:
            assert (await agent.ask("weather?")).text == "Take a coat."
        assert server.attempts[1].request.tool_results == ["rain in Oslo"]


async def test_limits_of_the_deployment_hold_and_can_be_replaced(tmp_path: Path) -> None:
    settings = {**deployment(""), "limits": {"max_tokens": 5, "max_steps": 7}, "effort": "low"}
    async with WireServer(wire.success("ok")) as server:
        settings["plugins"] = deployment(server.url)["plugins"]
        async with open_app(settings) as app:
            async with app.agent(cwd=tmp_path) as agent:
                await agent.ask("one")
            async with app.agent(cwd=tmp_path, max_tokens=9, effort="high") as agent:
                await agent.ask("two")
                assert agent.options.max_steps == 7
        first, second = (attempt.request.body for attempt in server.attempts)
    assert (first["max_tokens"], first["reasoning_effort"]) == (5, "low")
    assert (second["max_tokens"], second["reasoning_effort"]) == (9, "high")


async def test_leaving_a_run_early_a_thousand_times_exhausts_nothing(tmp_path: Path) -> None:
    # case: F-13
    answer = wire.success("some text to walk away from", chunk_size=2)
    async with (
        WireServer(answer) as server,
        open_app(deployment(server.url)) as app,
        app.agent(cwd=tmp_path) as agent,
    ):
        for _ in range(1_000):
            async with agent.run("go") as run:
                async for event in run:
                    if event.type == "assistant/chunk":
                        break
        assert (await agent.ask("once more")).text == "some text to walk away from"


async def test_leaving_a_run_inside_a_command_stops_the_command(tmp_path: Path) -> None:
    # case: F-13
    call = wire.tool_call_success("bash", {"command": "sleep 1000", "description": "d"})
    async with (
        WireServer([call, wire.success("ok")]) as server,
        open_app(deployment(server.url)) as app,
        app.agent(cwd=tmp_path) as agent,
    ):
        async with agent.run("go") as run:
            async for event in run:
                if event.type == "tool/call":
                    break
        assert agent.status == "idle"
        assert (await agent.ask("again")).text == "ok"
        assert agent.session.turn_open is None
