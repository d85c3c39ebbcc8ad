"""A process to strike down, and what has to be true of what it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

import anyio
import pytest

from dsh.agent_core import AgentCore, create_agent
from dsh.core import App, PluginLike
from dsh.llm import LlmRequest, LlmService, ToolCallBlock, ToolResultBlock
from dsh.llm_replay import ScriptedAdapter, text, tool_call
from dsh.session import (
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    AssistantMessage,
    SessionEvent,
    SessionHeader,
    StepStart,
    ToolCall,
    ToolResult,
    encode_event,
)
from dsh.session.testing import assert_balanced
from dsh.session_persistence import SessionPersistence, SessionSnapshot
from dsh.session_persistence.backend import summarize
from dsh.session_persistence_jsonl import JsonlPersistence
from dsh.session_persistence_sqlite import SqlitePersistence
from dsh.testkit import assert_paired_request, soon
from dsh.tools import tool

SUBJECT: Final = Path(__file__).with_name("subject.py")
MODEL: Final = "test/scripted"

MORE: Final = "CRASH_POINTS"
"""Environment variable: how many times as many points are tried as in an ordinary run."""

Events = tuple[SessionEvent, ...]


# --- the process --------------------------------------------------------------------------------


@dataclass(slots=True)
class Told:
    """What a process told before it ended, one way or another."""

    folder: Path
    store: str
    status: int = 0
    """Its exit code; minus the number of the signal that ended it."""
    words: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What it told, in order."""

    def of(self, kind: str) -> list[dict[str, Any]]:
        """Return what it told of one kind."""
        return [each for each in self.words if kind in each]

    @property
    def effects(self) -> list[str]:
        """The effects that its tools had, told or not."""
        file = self.folder / "effects"
        return file.read_text(encoding="utf-8").split() if file.exists() else []


class Subject:
    """A process that forks a child for each job, see `subject.py`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[bytes] = process.stdin
        self._out: IO[bytes] = process.stdout
        self.pid = self._hear()["ready"]

    def start(self, folder: Path, store: str, **job: Any) -> Told:
        """Have a child begin."""
        line = json.dumps({"folder": str(folder), "store": store, **job})
        self._in.write(line.encode() + b"\n")
        self._in.flush()
        return Told(folder, store)

    def listen(self, told: Told) -> bool:
        """Take the next word down; False if that was that it has ended."""
        words = self._hear()
        if "ended" in words:
            told.status = words["ended"]
            return False
        told.words.append(words)
        return True

    def run(self, folder: Path, store: str, **job: Any) -> Told:
        """Have a child do a job, and wait until it has ended."""
        told = self.start(folder, store, **job)
        while self.listen(told):
            pass
        return told

    def _hear(self) -> dict[str, Any]:
        line = self._out.readline()
        assert line, "the process that forks the others is gone"
        return json.loads(line)


@contextmanager
def hatched(*prefix: str) -> Generator[Subject]:
    """Run the process, behind a command line that runs another if there is one."""
    command = [*prefix, sys.executable, str(SUBJECT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield Subject(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # it ends at that, and a tracer in front of it with it


# --- what it leaves -----------------------------------------------------------------------------


def store_of(store: str, folder: Path) -> tuple[PluginLike, dict[str, object]]:
    """Return the plugin of a store and its configuration."""
    place = folder / "store"
    if store == "sqlite":
        return SqlitePersistence, {"file": str(place / "sessions.sqlite")}
    return JsonlPersistence, {"folder": str(place)}


class Inquest:
    """Looks at what a process left, as the next process would.

    Args:
        told: What it told before.
    """

    def __init__(self, told: Told) -> None:
        self._told = told
        self.found: Counter[str] = Counter()
        """What there was to see, so that a sweep can tell whether it saw it all."""

    async def hold(self) -> Counter[str]:
        """Fail unless nothing that was acknowledged is lost, and the sessions go on.

        Returns:
            What there was to see.
        """
        again = ScriptedAdapter(placeholders=False)
        async with App() as app:
            await app.mount(AgentCore).settled()
            await app.mount(*store_of(self._told.store, self._told.folder)).settled()
            app[LlmService].register(app.ctx, again, "test")
            store = app[SessionPersistence]
            listed = {item.header.id: item for item in await store.list_snapshots()}
            assert len(await store.list_snapshots()) == len(listed)
            assert set(listed) <= {"main", "branch"}
            logs = {name: await self._stored(store, name, listed[name]) for name in listed}
            self._acknowledged(logs)
            self._nothing_ahead(logs, {name: item.header for name, item in listed.items()})
            loaded = {name: await self._loaded(store, name, log) for name, log in logs.items()}
            # the one that was worked on; the other one costs the time of another point
            for name in [ack["ack"] for ack in self._told.of("ack")][-1:] or list(loaded):
                await self._goes_on(app, store, again, name, loaded[name])
        return self.found

    async def _stored(
        self, store: SessionPersistence, name: str, listed: SessionSnapshot
    ) -> Events:
        """Return a log as it was left; it has to be sound."""
        log = await store.read_from(name, 0)
        report = await store.verify(name)
        assert report.sound, report
        assert report.events == len(log)
        assert listed.summary == summarize(log)
        self.found["sessions"] += 1
        self.found["torn"] += report.torn
        self.found["interrupted"] += report.interrupted
        return log

    def _acknowledged(self, logs: dict[str, Events]) -> None:
        """All that was acknowledged is there, byte for byte, and was synced by then."""
        last = dict.fromkeys(logs, 0)
        digests = {name: digests_of(log) for name, log in logs.items()}
        for ack in self._told.of("ack"):
            name, count = ack["ack"], ack["count"]
            assert name in logs, f"session {name!r} is lost"
            assert count <= len(logs[name]), f"{count} events were acknowledged"
            assert ack["digest"] == digests[name][count], "events have changed"
            other = "branch" if name == "main" else "main"
            unsynced = [path for path in ack["unsynced"] if other not in Path(path).parts]
            assert unsynced == [], "a power cut would have lost it"
            last[name] = max(last[name], count)
            self.found["acknowledgements"] += 1
        for name, log in logs.items():
            self.found["more than acknowledged"] += len(log) > last[name]

    def _nothing_ahead(self, logs: dict[str, Events], headers: dict[str, SessionHeader]) -> None:
        """Nothing happened before the log that tells of it was acknowledged."""
        acked = dict.fromkeys(logs, 0)
        requests = {name: inherited_steps(logs[name], headers[name]) for name in logs}
        calls = {
            event.data.call_id: (name, event.seq)
            for name, log in logs.items()
            for event in log[headers[name].seed_length or 0 :]
            if isinstance(event.data, ToolCall)
        }
        for words in self._told.words:
            match words:
                case {"ack": name, "count": count}:
                    acked[name] = max(acked[name], count)
                case {"request": name}:
                    requests[name] += 1
                    steps = steps_of(logs[name][: acked[name]])
                    assert requests[name] <= steps, "a request was made ahead of the log"
                case {"effect": call_id}:
                    name, seq = calls[call_id]
                    assert seq < acked[name], "a tool ran ahead of the log"
                case _:
                    pass
        effects = self._told.effects
        assert len(set(effects)) == len(effects)
        assert set(effects) <= set(calls), "a tool ran that no log tells of"
        self.found["effects"] += len(effects)

    async def _loaded(self, store: SessionPersistence, name: str, log: Events) -> Events:
        """Return a log as it is loaded: closed once and for all, with evidence of what is open."""
        loaded = (await store.load(name)).events
        assert loaded[: len(log)] == log
        assert_balanced(loaded)
        assert (await store.load(name)).events == loaded
        assert await store.read_from(name, 0) == loaded
        assert bool(loaded[len(log) :]) == (log[-1].type != "turn/end")
        results = {
            event.data.call_id: event.data for event in loaded if isinstance(event.data, ToolResult)
        }
        repaired = {
            event.data.call_id for event in loaded[len(log) :] if isinstance(event.data, ToolResult)
        }
        begun = {event.data.call_id for event in log if isinstance(event.data, ToolCall)}
        for event in loaded:
            for block in event.data.content if isinstance(event.data, AssistantMessage) else ():
                if isinstance(block, ToolCallBlock):
                    result = results[block.id]
                    code = None if result.error is None else result.error.code
                    assert code != TOOL_NOT_STARTED or block.id not in self._told.effects
                    if block.id not in begun:
                        assert code == TOOL_NOT_STARTED
                    elif block.id in repaired:
                        assert code == TOOL_OUTCOME_UNKNOWN
                    self.found[code or "result"] += 1
        return loaded

    async def _goes_on(
        self, app: App, store: SessionPersistence, model: ScriptedAdapter, name: str, log: Events
    ) -> None:
        """Play a further turn with a tool, and see that it is stored behind all the others."""
        ran: list[str] = []

        @tool
        async def note() -> str:
            """Write it down."""
            ran.append("note")
            return "did it again"

        asked = len(model.requests)
        model.append(tool_call(f"again-{name}", "note"), text("Going on.", size=3))
        async with create_agent(app, model=MODEL, resume=name, tools=[note]) as agent:
            assert agent.session.events[:] == log
            assert (await soon(agent.ask("go on"))).text == "Going on."
            assert ran == ["note"]
            for request in model.requests[asked:]:
                assert_paired_request(request)
                assert_tells(request, log)
            events = agent.session.events[:]
            assert await store.read_from(name, 0) == events
        assert_balanced(events)
        assert (await store.verify(name)).sound
        assert [item.header.id for item in await store.list_snapshots()].count(name) == 1


def digests_of(log: Events) -> list[str]:
    """Return the digest of every beginning of a log, by its length."""
    state = hashlib.sha256()
    digests = [state.hexdigest()]
    for event in log:
        state.update(encode_event(event) + b"\n")
        digests.append(state.hexdigest())
    return digests


def steps_of(log: Events) -> int:
    """Return how many steps begin in a log; each makes at most one request."""
    return sum(isinstance(event.data, StepStart) for event in log)


def inherited_steps(log: Events, header: SessionHeader) -> int:
    """Return how many steps a log has from its parent."""
    return steps_of(log[: header.seed_length or 0])


def assert_tells(request: LlmRequest, log: Sequence[SessionEvent]) -> None:
    """Fail unless the model is told what every call of the log came to."""
    told = {
        block.tool_call_id: block
        for message in request.messages
        for block in message.content
        if isinstance(block, ToolResultBlock)
    }
    for event in log:
        if isinstance(event.data, ToolResult):
            assert told[event.data.call_id].content == event.data.content


# --- fixtures -----------------------------------------------------------------------------------

Judge = Callable[..., Counter[str]]


@pytest.fixture
def judge() -> Judge:
    """Return the function that looks at what a process left and fails with where it was struck."""

    def look(told: Told, **where: object) -> Counter[str]:
        try:
            return anyio.run(Inquest(told).hold)
        except BaseException as error:
            error.add_note(f"{told.store} in {told.folder}, struck at {where}")
            for words in told.words[-12:]:
                error.add_note(str(words))
            raise

    return look


@pytest.fixture
def chosen() -> Callable[[int, int], list[int]]:
    """Return the function that chooses evenly among so many points, up to all of them."""

    def choose(total: int, most: int) -> list[int]:
        most = min(total, most * int(os.environ.get(MORE, "1")))
        return [number * total // most for number in range(most)]

    return choose


@pytest.fixture(scope="session")
def hatch() -> Callable[..., AbstractContextManager[Subject]]:
    """Return the function that runs the process behind another program."""
    return hatched


@pytest.fixture
def place() -> Generator[Path]:
    """An empty folder, in memory where there is one: what is synced there costs nothing."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


# not for the session: others count what processes there are
@pytest.fixture(scope="module")
def subject() -> Generator[Subject]:
    """The process that plays, with nothing in front of it."""
    with hatched() as made:
        yield made
