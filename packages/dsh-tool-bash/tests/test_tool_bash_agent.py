"""The bash tools in the hands of an agent."""

from __future__ import annotations

from pathlib import Path

import anyio

from dsh.bash import BashExecutor
from dsh.bash_local import LocalBash
from dsh.llm import LlmRequest, TextBlock, ToolResultBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.process.testing import eventually
from dsh.testkit import open_spine
from dsh.tool_bash import ToolBash


def texts(request: LlmRequest) -> list[str]:
    """Every text the model was sent."""
    found: list[str] = []
    for message in request.messages:
        for block in message.content:
            if isinstance(block, TextBlock):
                found.append(block.text)
            elif isinstance(block, ToolResultBlock):
                found += [inner.text for inner in block.content if isinstance(inner, TextBlock)]
    return found


async def test_the_end_of_a_background_command_is_in_the_next_request(tmp_path: Path) -> None:
    start = {"command": "exit 3", "description": "Fail later", "run_in_background": True}
    adapter = ScriptedAdapter(
        [
            tool_call("c1", "bash", {"command": "pwd", "description": "Show the directory"}),
            tool_call("c2", "bash", start),
            text("started"),
            text("seen"),
        ]
    )
    requests: list[LlmRequest] = []
    async with (
        open_spine(adapter, plugins=[LocalBash, ToolBash]) as spine,
        spine.agent(cwd=str(tmp_path)) as agent,
    ):
        with anyio.fail_after(20):
            assert (await agent.ask("go")).text == "started"
            (task,) = spine.app[BashExecutor].list()
            await task.done()
            await eventually(lambda: len(agent.session.derive_messages()) > 6)
            assert len(adapter.calls) == 3, "nobody was woken up"
            assert (await agent.ask("and now?")).text == "seen"
        requests = [call.request for call in adapter.calls]
        logged = [event.type for event in agent.session.events]
    assert f"{tmp_path}\n" in texts(requests[1])
    assert "started background task bash-1" in texts(requests[2])
    (notice,) = [t for t in texts(requests[3]) if t.startswith("Background command bash-1")]
    assert "[status: completed, exit code: 3]" in notice
    assert "context/message" in logged


async def test_cancelling_the_turn_kills_the_command(tmp_path: Path) -> None:
    command = {"command": "echo $$ >pid; sleep 60", "description": "Sleep"}
    adapter = ScriptedAdapter([tool_call("c1", "bash", command), text("next")])
    async with (
        open_spine(adapter, plugins=[LocalBash, ToolBash]) as spine,
        spine.agent(cwd=str(tmp_path)) as agent,
    ):
        pid_file = tmp_path / "pid"
        receipt = agent.send("go")
        await eventually(lambda: pid_file.exists() and pid_file.read_text("utf-8") != "")
        agent.cancel("enough")
        with anyio.fail_after(10):
            outcome = await receipt.done()
        results = [e.data for e in agent.session.events if e.type == "tool/result"]
        assert outcome.reason.kind == "aborted"
        assert len(results) == 1
        pid = int(pid_file.read_text("utf-8"))
        assert not Path(f"/proc/{pid}").exists()  # noqa: ASYNC240
        assert (await agent.ask("again")).text == "next"
