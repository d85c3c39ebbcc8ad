"""Whatever a listener does, at any event of a turn: only what it has to answer for goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from dsh.agent.events import (
    AgentEnded,
    AgentError,
    AgentQueued,
    AgentRequest,
    AgentStatusChanged,
    PreStep,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    TurnContinuation,
    TurnStop,
)
from dsh.approval import ApprovalAsk
from dsh.core import DshError, Plugin
from dsh.llm.events import LlmStream
from dsh.session import Aborted, Completed, Disposed, Failed, PluginSource, TodoWrite, TurnEnd
from dsh.session.errors import EventRefusedError
from dsh.session.events import SessionDisposed, SessionEventAppended, SessionFlush
from dsh.system_prompt.events import SystemPromptAssemble
from dsh.tools import ToolExecute, ToolPostExecute, ToolPreExecute
from dsh.tools.events import ToolFinished

NOTE = PluginSource("note")
MOST = 7
"""Dispatches at which each deed is tried in an ordinary run."""
TOLD = (
    AgentEnded,
    AgentError,
    AgentQueued,
    AgentStatusChanged,
    SessionDisposed,
    SessionEventAppended,
    ToolFinished,
)
ASKED = (PreStep, SessionFlush, TurnStop)
AROUND = (
    AgentRequest,
    ApprovalAsk,
    PromptSubmit,
    SessionPrefix,
    StepResult,
    SystemPromptAssemble,
    ToolExecute,
    ToolPostExecute,
    ToolPreExecute,
    TurnContinuation,
)


class Boom(Exception):
    """What a listener raises."""


class Odd(BaseException):
    """The same, and no `Exception`."""


class Intruder(Plugin):
    """Listens to everything, and does something at one moment."""

    name = "intruder"

    async def start(self) -> None:
        self.trigger: Any = None
        self.effects: dict[Any, Any] = {}
        self.neighbours: dict[Any, Any] = {}
        for event in TOLD:
            self.listen(event, self.told, ignore)
        for event in ASKED:
            self.listen(event, self.asked, quiet)
        for event in AROUND:
            self.listen(event, self.around, on)
        self.listen(LlmStream, self.streamed, through)

    def listen(self, event: Any, own: Any, neighbour: Any) -> None:
        self.effects[event] = self.ctx.on(event, own)
        self.neighbours[event] = self.ctx.on(event, neighbour)

    def told(self, event: Any) -> None:
        self.trigger.strike(self, event)

    async def asked(self, event: Any) -> None:
        self.trigger.strike(self, event)

    async def around(self, event: Any, next: Any) -> Any:
        self.trigger.strike(self, event)
        answer = await next()
        self.trigger.strike(self, event)
        return answer

    async def streamed(self, event: Any, next: Any) -> Any:
        self.trigger.strike(self, event)
        async for chunk in next():
            yield chunk
        self.trigger.strike(self, event)


def ignore(event: Any) -> None:
    """Say nothing."""


async def quiet(event: Any) -> None:
    """Say nothing."""


async def on(event: Any, next: Any) -> Any:
    """Leave it to the next."""
    return await next()


async def through(event: Any, next: Any) -> Any:
    """Let it pass."""
    async for chunk in next():
        yield chunk


@dataclass(frozen=True)
class Deed:
    """Something that a listener does."""

    name: str
    do: Callable[[Any, Intruder, Any], object]
    """Given the scene, the listener's plugin and the event."""
    causes: tuple[Any, ...] = ()
    """Why a turn may end besides being completed."""
    raises: tuple[type[BaseException], ...] = ()
    """What may be told of it, to whoever hears of failures."""


def boom(scene: Any, intruder: Intruder, event: Any) -> None:
    raise Boom("boom")


def send(scene: Any, intruder: Intruder, event: Any) -> None:
    if scene.agent.status != "disposed":
        scene.receipts.append(scene.agent.send("from a listener"))


def steer(scene: Any, intruder: Intruder, event: Any) -> None:
    if scene.agent.status != "disposed":
        scene.receipts.append(scene.agent.steer("from a listener"))


def note(scene: Any, intruder: Intruder, event: Any) -> None:
    if scene.agent.status != "disposed":
        scene.agent.inject("from a listener", NOTE)


def append(scene: Any, intruder: Intruder, event: Any) -> None:
    if scene.session.turn_open is not None:
        scene.session.append(TodoWrite(()))


def leave(scene: Any, intruder: Intruder, event: Any) -> None:
    scene.touched = True
    intruder.effects[type(event)].dispose_nowait()


def evict(scene: Any, intruder: Intruder, event: Any) -> None:
    scene.touched = True
    intruder.neighbours[type(event)].dispose_nowait()


def end(scene: Any, intruder: Intruder, event: Any) -> None:
    scene.touched = True
    intruder.ctx.owner.request_dispose()


def odd(scene: Any, intruder: Intruder, event: Any) -> None:
    if isinstance(event, (*TOLD, SessionFlush)):
        # nobody contains this for an observer: it is meant to end the process
        return
    raise Odd("odd")


DEEDS = [
    Deed("raise", boom, (Failed,), (Boom,)),
    Deed("raise what is no exception", odd, (Failed,), (DshError,)),
    Deed("send", send),
    Deed("steer", steer),
    Deed("inject", note),
    Deed("append", append, (Failed,), (EventRefusedError,)),
    Deed("leave", leave),
    Deed("evict a neighbour", evict),
    Deed("end its owner", end),
    Deed("cancel", lambda scene, intruder, event: scene.agent.cancel("swept"), (Aborted,)),
    Deed("dispose", lambda scene, intruder, event: scene.handle.request_dispose(), (Disposed,)),
]


def check(deed: Deed, scene: Any) -> None:
    told = [failure.error for failure in scene.failures]
    told += [error.error for error in scene.errors]
    assert all(isinstance(error, deed.raises) for error in told), told
    for event in scene.session.events:
        if isinstance(event.data, TurnEnd):
            assert isinstance(event.data.reason, (Completed, *deed.causes)), event


@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.name)
async def test_done_by_a_listener(stage: Any, deed: Deed) -> None:
    total = await stage.length(Intruder)
    assert total > 150
    for number in stage.chosen(total, MOST, DEEDS.index(deed)):
        trigger = stage.Trigger(number, deed.do)
        scene = await stage.play(trigger, Intruder)
        try:
            check(deed, scene)
        except AssertionError as error:
            raise AssertionError(f"{deed.name} at {number}, {trigger.at}: {error}") from error
