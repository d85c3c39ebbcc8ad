"""Runs the floor through one scenario and reports what it took.

Usage: `python -m benchmarks.run_floor SCENARIO URL COUNT`, the scenarios being `tool` and `bash`
(COUNT rounds with one tool call each), `deltas` (one answer of COUNT deltas), `agents` (COUNT
agents at the same time over one client, five rounds each) and `agents-apart` (with a client each).
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from contextlib import AsyncExitStack

import httpx

from benchmarks.floor import SYSTEM, Message, run
from benchmarks.meter import Meter
from benchmarks.scenarios import AGENT_ROUNDS, PROMPT, THINKING_MS


async def one(scenario: str, url: str, count: int) -> None:
    """Answer one prompt, after another one that warms everything up."""
    async with httpx.AsyncClient(timeout=None) as client:
        await run(client, f"{url}/text", [_system()], PROMPT)
        meter = Meter()
        await run(client, f"{url}/{scenario}/{count}", [_system()], PROMPT)
        meter.report()


async def many(url: str, count: int, clients: int) -> None:
    """Answer `count` prompts at the same time.

    Args:
        url: Where the model is.
        count: How many agents there are.
        clients: How many clients they share: one, as httpx advises, or one each.
    """
    # Without the limits: httpx would queue most of the agents, and then give up on them.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    path = f"{url}/tool/{AGENT_ROUNDS}/{THINKING_MS}"
    async with AsyncExitStack() as stack:
        tls = ssl.create_default_context()
        made = [
            await stack.enter_async_context(
                httpx.AsyncClient(timeout=None, limits=limits, verify=tls)
            )
            for _ in range(clients)
        ]
        await run(made[0], f"{url}/text", [_system()], PROMPT)
        meter = Meter()
        await asyncio.gather(
            *(run(made[n % clients], path, [_system()], PROMPT) for n in range(count))
        )
        meter.report()


def _system() -> Message:
    return {"role": "system", "content": SYSTEM}


def main(scenario: str, url: str, number: str) -> None:
    """Run one scenario; the arguments are those of the command line."""
    count = int(number)
    match scenario:
        case "agents":
            asyncio.run(many(url, count, 1))
        case "agents-apart":
            asyncio.run(many(url, count, count))
        case _:
            asyncio.run(one(scenario, url, count))


if __name__ == "__main__":
    main(*sys.argv[1:])
