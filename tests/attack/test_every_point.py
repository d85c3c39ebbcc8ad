"""Whatever is done at any moment of a turn: the log is whole, nothing hangs or is left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pytest

from dsh.agent.loopkit import Loop
from dsh.core import Effect, PluginLike
from dsh.llm import LlmError
from dsh.llm_replay import ScriptedAdapter
from dsh.session import (
    Aborted,
    Completed,
    Disposed,
    Failed,
    LiveSessions,
    PluginSource,
    SessionEvent,
    StepStart,
    TodoWrite,
    TurnEnd,
)

NOTE = PluginSource("note")
MOST = 4
"""Points at which each action is tried in an ordinary run."""


@dataclass(frozen=True)
class Attack:
    """Something that is done to a turn under way."""

    name: str
    act: Callable[[Any], object]
    """Given the scene."""
    cause: Any = None
    """Why the turn ends that was under way; None: it goes on to its end."""
    sure: bool = True
    """Whether it takes effect at once, so that no other request is made."""
    may_fail: bool = False
    """Whether the turn may fail for want of a model."""


def plugin(scene: Any, name: str) -> Any:
    """Return a part of the scene, running."""
    return next(m for part, m in scene.mounts.items() if part.__name__ == name).instance


def kill(scene: Any) -> None:
    """Cancel the driver's task, as a torn-down task group would."""
    for effect in effects_below(scene.app[Loop].ctx.owner.effects):
        if effect.label.startswith("driver of"):
            (stop,) = getattr(effect, "_cleanups")  # noqa: B009
            stop.__self__.cancel()


def effects_below(effects: Iterable[Effect]) -> Iterable[Effect]:
    for effect in effects:
        yield effect
        yield from effects_below(effect.children)


def cancel_twice(scene: Any) -> None:
    scene.agent.cancel("swept")
    scene.agent.cancel("again")


def cancel_and_send(scene: Any) -> None:
    scene.agent.cancel("swept")
    scene.receipts.append(scene.agent.send("instead"))


def dispose_twice(scene: Any) -> None:
    for _ in range(2):
        scene.handle.request_dispose()
        scene.app.ctx.spawn(scene.handle.dispose)


def cancel_and_dispose(scene: Any) -> None:
    scene.agent.cancel("swept")
    scene.handle.request_dispose()


def swap_model(scene: Any) -> None:
    adapter = plugin(scene, "Adapter")
    adapter.entry.dispose_nowait()
    adapter.entry = adapter.llm.register(adapter.ctx, ScriptedAdapter(scene.answer), "test")


def swap_tools(scene: Any) -> None:
    tools = plugin(scene, "Tools")
    for name, entry in list(tools.entries.items()):
        entry.dispose_nowait()
        tools.offer(name)


def say_everything(scene: Any) -> None:
    agent = scene.agent
    agent.inject("by the way", NOTE)
    agent.record(TodoWrite(()))
    scene.receipts += [agent.steer("to the left"), agent.send("one more")]


def withdraw(scene: Any) -> None:
    receipt = scene.agent.send("never mind")
    assert receipt.withdraw()
    scene.receipts.append(receipt)


def fork(scene: Any) -> None:
    session = scene.session
    ends = [event.seq for event in session.events if isinstance(event.data, TurnEnd)]
    if scene.agent.status != "disposed":
        child = scene.app[LiveSessions].fork(scene.agent.ctx, session, ends[-1])
        assert child.events[-1] == session.events[ends[-1]]


def dropping(part: PluginLike, needed: bool) -> Attack:
    return Attack(
        f"drop {part.__name__}",
        lambda scene: scene.mounts[part].request_dispose(),
        cause=Disposed() if needed else None,
        sure=False,
        may_fail=part.__name__ == "Adapter",
    )


def restarting(part: PluginLike, needed: bool) -> Attack:
    return Attack(
        f"restart {part.__name__}",
        lambda scene: scene.mounts[part].request_restart(),
        cause=Disposed() if needed else None,
        sure=False,
        may_fail=part.__name__ == "Adapter",
    )


ON_THE_AGENT = [
    Attack("cancel", lambda scene: scene.agent.cancel("swept"), Aborted("swept")),
    Attack("cancel twice", cancel_twice, Aborted("swept")),
    Attack("cancel and send", cancel_and_send, Aborted("swept"), sure=False),
    Attack("cancel and dispose", cancel_and_dispose, Aborted("swept")),
    Attack("dispose", lambda scene: scene.handle.request_dispose(), Disposed()),
    Attack("leave the handle", lambda s: s.app.ctx.spawn(s.handle.dispose), Disposed(), sure=False),
    Attack("dispose twice", dispose_twice, Disposed()),
    Attack("kill", kill, Disposed(), sure=False),
    Attack("leave the app", lambda scene: scene.waiting.cancel(), Disposed(), sure=False),
    Attack("cancel the app", lambda scene: scene.outside.cancel(), Disposed(), sure=False),
    Attack("say everything", say_everything),
    Attack("withdraw", withdraw),
    Attack("fork", fork),
    Attack("swap the model", swap_model),
    Attack("swap the tools", swap_tools),
]


def check(attack: Attack, scene: Any) -> None:
    """Fail unless an attack had the outcome it must have, and nothing else went wrong."""
    assert scene.failures == []
    codes = {getattr(error.error, "code", None) for error in scene.errors}
    assert codes <= ({LlmError.NO_ADAPTER} if attack.may_fail else set())
    reasons = {
        event.data.turn: event.data.reason
        for event in scene.session.events
        if isinstance(event.data, TurnEnd)
    }
    if attack.cause is not None and attack.sure and scene.settled is not None:
        # what comes after a cancel has a turn of its own
        later = [e.data.turn for e in scene.session.events[scene.mark :] if is_step(e)]
        assert scene.struck not in later
        assert scene.settled - scene.asked_before <= len(later)
    for turn, reason in reasons.items():
        if turn == scene.struck and attack.cause is not None:
            assert reason == attack.cause or (not attack.sure and reason == Completed()), reason
        else:
            late = attack.cause if not attack.sure else None
            assert reason in (Completed(), late) or (attack.may_fail and isinstance(reason, Failed))


def is_step(event: SessionEvent) -> bool:
    return isinstance(event.data, StepStart)


async def strike(stage: Any, attack: Attack, shift: int) -> None:
    total = await stage.length()
    assert total > 100
    for number in stage.chosen(total, MOST, shift):
        trigger = stage.Trigger(number, attack.act)
        scene = await stage.play(trigger)
        try:
            check(attack, scene)
        except AssertionError as error:
            raise AssertionError(f"{attack.name} at moment {number}: {error}") from error


@pytest.mark.parametrize("attack", ON_THE_AGENT, ids=lambda attack: attack.name)
async def test_done_to_the_agent(stage: Any, attack: Attack) -> None:
    await strike(stage, attack, ON_THE_AGENT.index(attack))


@pytest.mark.parametrize("how", [dropping, restarting])
@pytest.mark.parametrize("place", range(12))
async def test_done_to_a_part_of_the_app(stage: Any, how: Any, place: int) -> None:
    part = stage.PARTS[place]
    await strike(stage, how(part, part in stage.NEEDED), place)


@pytest.mark.parametrize("attack", ON_THE_AGENT[:5], ids=lambda attack: attack.name)
async def test_the_same_again_has_the_same_end(stage: Any, attack: Attack) -> None:
    for number in stage.chosen(await stage.length(), 2, ON_THE_AGENT.index(attack)):
        scenes = [await stage.play(stage.Trigger(number, attack.act)) for _ in range(2)]
        first, second = (scene.signature() for scene in scenes)
        assert first == second, f"{attack.name} at moment {number}"
