"""Runs dsh through one scenario and reports what it took.

Usage: `python -m benchmarks.run_dsh SCENARIO URL COUNT`; the scenarios are those of
`benchmarks.run_floor`. The app is the one `dsh run` makes: the whole spine with its invariants,
the DeepSeek adapter, the bash tool and its local provider, everything at its defaults.
"""

from __future__ import annotations

import sys

import anyio

from benchmarks.meter import Meter
from benchmarks.scenarios import AGENT_ROUNDS, PROMPT, THINKING_MS
from dsh.agent import Agent
from dsh.core import JsonObject
from dsh.loader import LoadedApp, open_app
from dsh.session import AssistantChunk, Completed, ToolResult
from dsh.tools import Tool, ToolExecution, ToolRegistry

WARM_UP = "warm-up/bench"
MODEL = "measured/bench"


async def noop(arguments: JsonObject, execution: ToolExecution) -> str:
    """Do nothing."""
    return "done"


NOOP = Tool(
    "noop",
    "Does nothing.",
    {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    noop,
)


def app_for(url: str, path: str) -> LoadedApp:
    """Make the app; one endpoint of it gives a short answer, the other one the measured ones."""
    endpoints = {"warm-up": f"{url}/text", "measured": f"{url}/{path}"}
    adapters = [
        {
            "use": "llm-deepseek",
            "id": provider,
            "config": {
                "provider": provider,
                "base_url": base_url,
                "api_key": "key-of-the-benchmark",
                "models": [{"id": "bench"}],
            },
        }
        for provider, base_url in endpoints.items()
    ]
    return open_app({"plugins": [*adapters, "tool-bash"]})


async def ask(agent: Agent) -> None:
    """Ask the agent and make sure that the turn went well."""
    outcome = await agent.ask(PROMPT)
    assert isinstance(outcome.reason, Completed), outcome


async def one(scenario: str, url: str, count: int) -> None:
    """Answer one prompt, after another agent has warmed everything up."""
    async with app_for(url, f"{scenario}/{count}") as app:
        app[ToolRegistry].register(app.ctx, NOOP)
        async with app.agent(model=WARM_UP) as agent:
            await ask(agent)
        async with app.agent(model=MODEL) as agent:
            meter = Meter()
            await ask(agent)
            meter.stop()
            payloads = [event.data for event in agent.session.events]
            failed = [data for data in payloads if isinstance(data, ToolResult) and data.is_error]
            assert not failed, failed[0]
            chunks = sum(isinstance(data, AssistantChunk) for data in payloads)
            meter.report(events=len(payloads), chunks=chunks)


async def many(url: str, count: int) -> None:
    """Make `count` agents and ask them all at the same time."""
    async with app_for(url, f"tool/{AGENT_ROUNDS}/{THINKING_MS}") as app:
        app[ToolRegistry].register(app.ctx, NOOP)
        async with app.agent(model=WARM_UP) as agent:
            await ask(agent)
        meter = Meter()
        async with anyio.create_task_group() as agents:
            for _ in range(count):
                agents.start_soon(_live, app)
        meter.report()


async def _live(app: LoadedApp) -> None:
    async with app.agent(model=MODEL) as agent:
        await ask(agent)


if __name__ == "__main__":
    name, base, number = sys.argv[1:]
    if name == "agents":
        anyio.run(many, base, int(number))
    else:
        anyio.run(one, name, base, int(number))
