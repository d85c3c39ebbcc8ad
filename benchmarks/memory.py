"""What agents and events keep in memory.

Usage: `python -m benchmarks.memory SUBJECT COUNT`, the subjects being:

    idle        COUNT agents that exist (`new`) and then have answered once (`used`): KiB for each,
                by tracemalloc
    resident    the same by the resident size of the process
    events      COUNT events in one session: bytes for each, without its own text
    disposed    COUNT agents that come, answer and go: bytes that stay of each

A scripted model inside of the process answers, so that only the spine is counted.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio

from benchmarks.meter import report
from dsh.agent import Agent
from dsh.core import Plugin, inject
from dsh.llm import (
    BlockEnd,
    BlockStart,
    Finish,
    FinishReason,
    LlmAdapter,
    LlmRequest,
    LlmService,
    StreamChunk,
    TextBlock,
    TextDelta,
    TokenUsage,
    UsageChunk,
)
from dsh.loader import LoadedApp, open_app
from dsh.session import AssistantChunk

MODEL = "inside/bench"
WARM_UP = 50
"""Agents that come and go before anything is measured."""

_PAGE_KIB = 4


class Parrot(LlmAdapter):
    """Answers at once, in as many deltas as the prompt says, if it says a number."""

    async def stream(self, request: LlmRequest) -> AsyncGenerator[StreamChunk, None]:
        """Answer."""
        (prompt,) = request.messages[-1].content
        said = prompt.text if isinstance(prompt, TextBlock) else ""
        words = [f"word{number:06} " for number in range(int(said) if said.isdigit() else 3)]
        yield BlockStart(0, "text")
        for word in words:
            yield TextDelta(0, word)
        yield BlockEnd(0, TextBlock("".join(words)))
        yield UsageChunk(TokenUsage(10, len(words)))
        yield Finish(FinishReason("stop"))


class ParrotPlugin(Plugin):
    """Registers the model inside of the process."""

    llm = inject(LlmService)

    async def start(self) -> None:
        """Register it."""
        self.llm.register(self.ctx, Parrot(), provider="inside", models=["bench"])


def app() -> LoadedApp:
    """Make an app with the whole spine and the model inside of the process."""
    return open_app({"plugins": ["tool-bash"]}, plugins=[ParrotPlugin])


async def come_and_go(app: LoadedApp, count: int) -> None:
    """Make agents one after the other; each answers and is disposed."""
    for _ in range(count):
        async with app.agent(model=MODEL) as agent:
            await agent.ask("hello")


async def idle(count: int) -> None:
    """Measure agents that exist and wait, with tracemalloc."""
    tracemalloc.start()
    await _idle(count, lambda: _traced() / 1024)


async def resident(count: int) -> None:
    """Measure the same by the resident size of the process."""
    await _idle(count, _resident_kib)


async def _idle(count: int, kib: Callable[[], float]) -> None:
    async with app() as app_, AsyncExitStack() as stack:
        await come_and_go(app_, WARM_UP)
        before = kib()
        agents: list[Agent] = []
        for _ in range(count):
            agents.append(await stack.enter_async_context(app_.agent(model=MODEL)))
        new = kib() - before
        for agent in agents:
            await agent.ask("hello")
        report(new=new / count, used=(kib() - before) / count)


async def events(count: int) -> None:
    """Measure what an event of a session costs beyond its text."""
    async with app() as app_, app_.agent(model=MODEL) as agent:
        await agent.ask("hello")
        tracemalloc.start()
        before = _traced()
        first = agent.session.seq
        await agent.ask(str(count))
        kept = _traced() - before
        tracemalloc.stop()
        texts = sum(
            len(event.data.chunk.text)
            for event in agent.session.events[first:]
            if isinstance(event.data, AssistantChunk) and isinstance(event.data.chunk, TextDelta)
        )
        logged = agent.session.seq - first
        report(events=logged, bytes=(kept - texts) / logged)


async def disposed(count: int) -> None:
    """Measure what stays of agents that have gone."""
    async with app() as app_:
        await come_and_go(app_, WARM_UP)
        tracemalloc.start()
        await come_and_go(app_, WARM_UP)
        before, objects = _traced(), len(gc.get_objects())
        await come_and_go(app_, count)
        kept = _traced() - before
        more = len(gc.get_objects()) - objects
        tracemalloc.stop()
        report(bytes=kept / count, objects=more / count)


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _resident_kib() -> float:
    gc.collect()
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0.0
    return int(statm.read_text(encoding="utf-8").split()[1]) * _PAGE_KIB


SUBJECTS = {"idle": idle, "resident": resident, "events": events, "disposed": disposed}

if __name__ == "__main__":
    subject, number = sys.argv[1:]
    anyio.run(SUBJECTS[subject], int(number))
