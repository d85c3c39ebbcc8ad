"""The page of one turn, drawn from a run that really took place.

The spine runs with a scripted model and one tool. An observer of all dispatches notes each event
and, from the call stack, which wheels were at work: who sent the event, and on whose behalf.
Nothing that differs between two runs is kept: no ids, no times.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from types import CodeType, FrameType
from typing import Final, Literal, TypeAlias

import anyio

from catalog.links import Links
from catalog.markdown import Page
from catalog.mermaid import fenced
from catalog.shapes import Workspace
from dsh.agent.events import AgentStatusChanged
from dsh.agent_core import AgentCore, create_agent
from dsh.core import App, Event
from dsh.llm import LlmRequest, LlmService
from dsh.llm_replay import Answer, ScriptedAdapter, text, tool_call
from dsh.session import Completed
from dsh.session.events import SessionEventAppended
from dsh.tools import tool

A_TURN = "a-turn.md"

Phase: TypeAlias = Literal["before", "turn", "after"]
Kind: TypeAlias = Literal["event", "log", "model", "tool", "answer"]

LANES: Final = {
    "front door": "front door",
    "dsh-agent": "agent",
    "dsh-agent-loop": "loop",
    "dsh-system-prompt": "prompt",
    "dsh-llm": "llm",
    "dsh-llm-replay": "model adapter",
    "dsh-tools": "tools",
    "tool": "tool",
    "dsh-session": "session log",
    "plugins": "listeners",
}
"""Who takes part, in the order of the diagram, with the name on top of the lane."""

_PROMPT = "How is the weather in Paris?"
_KERNEL = "dsh.core"
_PASSED_OVER = frozenset({"dsh-agent-core", "dsh-invariants"})
"""Wheels that only pass a call on; what they do counts as done by who called them.

How much `dsh-invariants` wraps depends on the environment, which must not show.
"""


@dataclass(frozen=True, slots=True)
class Hop:
    """One participant at work, and how it was called."""

    lane: str
    called: str
    """What was called, in words of the diagram."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Something that happened in the run."""

    kind: Kind
    phase: Phase
    name: str
    """Name of the event; type of what was logged."""
    mode: str
    detail: str
    chain: tuple[Hop, ...]
    """Who was at work, outermost first; the last one did it."""

    @property
    def lane(self) -> str:
        """Who did it."""
        return self.chain[-1].lane

    @property
    def label(self) -> str:
        """Name and detail."""
        return f"{self.name}: {self.detail}" if self.detail else self.name


# --- the run --------------------------------------------------------------------------------


def record(backend: str = "asyncio") -> tuple[Moment, ...]:
    """Run one turn and return what happened, in order.

    Args:
        backend: Event loop, `asyncio` or `trio`; the result is the same.

    Raises:
        ValueError: The turn did not go as it should, so a page of it would mislead.
    """
    recorder = _Recorder()
    anyio.run(recorder.front_door, backend=backend)
    return tuple(recorder.moments)


class _Recorder:
    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._phase: Phase = "before"

    async def front_door(self) -> None:
        """Do what a program does that embeds an agent."""

        async def weather(city: str) -> str:
            """Say how the weather is in a city.

            Args:
                city: Name of the city.
            """
            self._note("tool", "weather", "")
            return f"It rains in {city}."

        def asks_for_a_tool(request: LlmRequest) -> Answer:
            self._note("model", "stream", "")
            return tool_call("call-1", "weather", {"city": "Paris"})

        def answers(request: LlmRequest) -> Answer:
            self._note("model", "stream", "")
            return text("It rains in Paris.", size=6)

        model = ScriptedAdapter([asks_for_a_tool, answers])
        async with App() as app:
            await app.mount(AgentCore).settled()
            app[LlmService].register(app.ctx, model, "replay")
            app.on_dispatch(app.ctx, self._see)
            async with create_agent(app, model="replay/scripted", tools=[tool(weather)]) as agent:
                self._phase = "turn"
                async with agent.run(_PROMPT) as run:
                    logged = [event.type async for event in run]
                    # what comes after the last entry is part of the picture: flush, idle
                    await agent.when_idle()
                    outcome = await run.done()
                if not isinstance(outcome.reason, Completed) or "tool/result" not in logged:
                    raise ValueError(f"the recorded turn went wrong: {outcome}")
                self._note("answer", "the turn is over", outcome.text)
                self._phase = "after"

    def _see(self, event: Event, key: object, mode: str) -> None:
        if isinstance(event, SessionEventAppended):
            self._note("log", event.event.type, "", mode)
        else:
            detail = event.status if isinstance(event, AgentStatusChanged) else ""
            self._note("event", event.event_name, detail, mode)

    def _note(self, kind: Kind, name: str, detail: str, mode: str = "") -> None:
        chain = tuple(_reduced(_at_work(inspect.currentframe())))
        self.moments.append(Moment(kind, self._phase, name, mode, detail, chain))


def _at_work(frame: FrameType | None) -> Iterator[Hop]:
    """Yield who is on the call stack, innermost first, up to the front door or the task's root."""
    while frame is not None:
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        if code is _Recorder.front_door.__code__:
            yield Hop("front door", code.co_name)
            return
        if code.co_name == "weather":
            yield Hop("tool", f"{code.co_name}()")
        parts = module.split(".")
        if parts[0] == "dsh" and ".".join(parts[:2]) != _KERNEL:
            wheel = "dsh-" + parts[1].replace("_", "-")
            if wheel not in _PASSED_OVER:
                yield Hop(wheel, _call(code))
        elif module == "anyio._core._eventloop":
            return  # below lies the program that started the event loop, not the caller
        frame = frame.f_back


def _call(code: CodeType) -> str:
    owner, _, method = code.co_qualname.split(".<locals>", 1)[0].rpartition(".")
    if method == "__aenter__":
        return f"async with {owner}"
    if not owner and code.co_flags & inspect.CO_ASYNC_GENERATOR:
        return "read the stream"
    return f"{owner}.{method}()".lstrip(".")


def _reduced(hops: Iterable[Hop]) -> list[Hop]:
    """Return the hops outermost first, each stay in one lane as the call that began it."""
    outermost_first = reversed(list(hops))
    return [next(stay) for _, stay in groupby(outermost_first, key=lambda hop: hop.lane)]


# --- the page -------------------------------------------------------------------------------


def render(workspace: Workspace) -> str:
    """Return the page."""
    moments = record()
    page = Page("A turn, as it happened")
    page.add(
        "Drawn from a recorded run: [dsh-agent-core](../../packages/dsh-agent-core/README.md) with "
        f"a scripted model that asks for one tool and then answers. The prompt was “{_PROMPT}” No "
        "further plugin was mounted, so every decision is the default one."
    )
    page.heading(2, "The diagram")
    page.add(diagram([moment for moment in moments if moment.phase == "turn"]))
    page.add(
        "An arrow to *listeners* is an event, with its mode; that is where plugins come in. "
        "`serial`, `waterfall` and `stream` events ask for something, and the sender goes on with "
        "what comes back. An arrow to *session log* is an entry that is appended; each is followed "
        "by `session/event`, which tells the front door to read on. What a listener of "
        "`tools/execute` or `llm/stream` wraps is what happens between it and the next event."
    )
    for phase, title, lead in (
        ("before", "Before the turn", "The agent is made. What a listener refuses is taken back."),
        ("turn", "The turn", "A number in brackets says how often an entry came in a row."),
        ("after", "After the turn", "The front door leaves its block, and the agent with it."),
    ):
        page.heading(2, title)
        page.add(lead)
        page.table(
            ("what happens", "mode", "gives", "declared by", "done by", "asked by"),
            _rows(workspace, [moment for moment in moments if moment.phase == phase]),
        )
    return page.text()


def _rows(workspace: Workspace, moments: Iterable[Moment]) -> list[tuple[str, ...]]:
    links = Links(workspace, A_TURN)
    events = {event.name: event for event in workspace.events}
    payloads = {payload.type: payload for payload in workspace.payloads}
    rows: list[tuple[str, ...]] = []
    for _, run in groupby(moments, key=lambda moment: (moment.kind, moment.label, moment.chain)):
        same = list(run)
        moment = same[0]
        event, payload = events.get(moment.name), payloads.get(moment.name)
        times = f" ({len(same)})" if len(same) > 1 else ""
        if moment.kind == "log" and payload is not None:
            cells = (f"log {links.named(payload.path, payload.type)}{times}", "", "", payload.wheel)
        elif moment.kind == "event" and event is not None:
            name = links.named(event.path, event.name)
            detail = f": {moment.detail}" if moment.detail else ""
            result = f"`{event.result}`" if event.result not in (None, "Never") else ""
            cells = (f"{name}{detail}{times}", moment.mode, result, event.wheel)
        else:
            cells = (f"*{_sentence(moment)}*", "", "", "")
        # an entry is appended by the session for somebody, who is the one that did it
        doers = [hop.lane for hop in moment.chain[: -1 if moment.kind == "log" else None]]
        rows.append((*cells, doers[-1], doers[-2] if len(doers) > 1 else ""))
    return rows


def _sentence(moment: Moment) -> str:
    match moment.kind:
        case "model":
            return "the adapter streams an answer"
        case "tool":
            return f"the tool {moment.name} runs"
        case _:
            return moment.label


# --- the diagram ----------------------------------------------------------------------------


def diagram(moments: list[Moment]) -> str:
    """Return the sequence diagram of some moments, as a fenced block.

    Raises:
        ValueError: Somebody takes part who has no lane.
    """
    strangers = {hop.lane for moment in moments for hop in moment.chain} - LANES.keys()
    if strangers:
        names = ", ".join(sorted(strangers))
        raise ValueError(f"{names} takes part in the turn and has no lane; add it to LANES")
    steps: list[str] = []
    for line, same in groupby(_lines(moments)):
        times = len(list(same))
        steps += [line] if times == 1 else [f"loop {times} times", f"    {line}", "end"]
    drawn = "\n".join(steps)
    lanes = [
        f"participant {_lane(lane)} as {title}"
        for lane, title in LANES.items()
        if re.search(rf"\b{_lane(lane)}\b", drawn)
    ]
    return fenced(["sequenceDiagram", *(f"    {line}" for line in ["autonumber", *lanes, *steps])])


def _lane(lane: str) -> str:
    # `loop` and `end` are words of the language, so no lane is called by its bare name
    return "lane_" + lane.replace("-", "_").replace(" ", "_")


def _arrow(source: str, target: str, label: str, line: str = "->>") -> str:
    return f"{_lane(source)}{line}{_lane(target)}: {label}"


def _lines(moments: list[Moment]) -> Iterator[str]:
    before: tuple[Hop, ...] = ()
    steps = 0
    for moment in moments:
        hops = moment.chain if moment.kind != "log" else moment.chain[:-1]
        yield from _calls(before, hops)
        before = moment.chain
        match moment.kind:
            case "event":
                yield _arrow(moment.lane, "plugins", f"{moment.label} ({moment.mode})")
            case "log":
                if moment.name == "step/start":
                    steps += 1
                    yield f"Note over {_lane(hops[-1].lane)},{_lane(moment.lane)}: step {steps}"
                yield _arrow(hops[-1].lane, moment.lane, moment.name)
            case "answer":
                yield _arrow("dsh-agent", moment.lane, moment.detail, "-->>")
            case _:
                pass


def _calls(before: tuple[Hop, ...], chain: tuple[Hop, ...]) -> Iterator[str]:
    """Yield the calls that lead to a moment and were not under way at the moment before."""
    common = 0
    while common < min(len(before), len(chain)) and before[common] == chain[common]:
        common += 1
    for caller, callee in zip(chain[max(common - 1, 0) :], chain[max(common, 1) :], strict=False):
        yield _arrow(caller.lane, callee.lane, callee.called)
