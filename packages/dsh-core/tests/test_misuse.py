"""What goes wrong in a first plugin is said where it is written, in words that help."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from dsh.core import App, Emit, EventModeError, InvalidEffectError, Plugin, Waterfall, on


@dataclass(frozen=True, slots=True)
class Rung(Emit, name="misuse/rung"):
    """The bell rang."""


@dataclass(frozen=True, slots=True)
class Priced(Waterfall[int], name="misuse/priced"):
    """What it costs."""


async def test_a_listener_takes_what_it_is_called_with() -> None:
    async def without_next(event: Priced) -> int:
        return 1

    def with_next(event: Rung, next: object) -> None: ...

    async def nothing() -> int:
        return 1

    wrong: Any
    async with App() as app:
        for event, wrong, shape in (
            (Priced, without_next, "(event, next)"),
            (Priced, nothing, "(event, next)"),
            (Rung, with_next, "(event)"),
        ):
            with pytest.raises(EventModeError) as caught:
                app.ctx.on(event, wrong)
            assert caught.value.hint == f"its arguments are {shape}"


async def test_a_declared_listener_is_checked_when_its_plugin_is_mounted() -> None:
    async def forgetful(self: Any, event: Priced) -> int:
        return 1

    wrong: Any = forgetful
    forgetful_plugin = type("Forgetful", (Plugin,), {"price": on(Priced)(wrong)})
    async with App() as app:
        app.on_error(app.ctx, lambda failure: None)
        with pytest.raises(EventModeError, match="misuse/priced"):
            await app.mount(forgetful_plugin).settled()


async def test_listeners_may_take_more_where_it_has_a_default() -> None:
    heard: list[object] = []

    def defaulted(event: Rung, label: str = "own") -> None:
        heard.append(label)

    def anything(*arguments: object) -> None:
        heard.append(len(arguments))

    def named(label: str, event: Rung) -> None:
        heard.append(label)

    class Callable:
        def __call__(self, event: Rung) -> None:
            heard.append("object")

    async with App() as app:
        for listener in (defaulted, anything, partial(named, "partial"), Callable()):
            app.ctx.on(Rung, listener)
        app.ctx.emit(Rung())
    assert heard == ["own", 1, "partial", "object"]


async def test_a_class_is_no_event() -> None:
    wrong: Any = Rung
    async with App() as app:
        with pytest.raises(EventModeError, match="instance of the event class"):
            app.ctx.emit(wrong)


async def test_a_cleanup_and_a_task_are_given_as_functions() -> None:
    async def work() -> None: ...

    wrong: Any = None
    async with App() as app:
        with pytest.raises(InvalidEffectError, match="not its result"):
            app.ctx.defer(wrong)
        wrong = work()
        with pytest.raises(InvalidEffectError, match="the function and its arguments"):
            app.ctx.spawn(wrong)
        wrong.close()
