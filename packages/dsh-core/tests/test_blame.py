"""A dispatcher of a waterfall is told whose listener broke down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.core import App, Context, EventModeError, Next, Plugin, Waterfall, on


@dataclass(frozen=True, slots=True)
class Weighed(Waterfall[int], name="blame/weighed"):
    """What it weighs."""


async def nothing(event: Weighed) -> int:
    return 0


class Told:
    """Collects what the dispatcher is told."""

    def __init__(self) -> None:
        self.failures: list[tuple[str, Exception]] = []

    def __call__(self, owner: Context, error: Exception) -> None:
        self.failures.append((owner.owner.name, error))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.failures]


class Passing(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        return await next()


class Grouping(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        async with anyio.create_task_group() as group:
            group.start_soon(self.ask, next)
        return 1

    async def ask(self, next: Next[int]) -> None:
        await next()


class Containing(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        try:
            return await next()
        except ValueError:
            return 1


class Translating(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        try:
            return await next()
        except ValueError:
            raise KeyError("translated") from None


class Broken(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        raise ValueError("broken")


class Rewriting(Plugin):
    @on(Weighed)
    async def weigh(self, event: Weighed, next: Next[int]) -> int:
        wrong: Any = next
        return await wrong("no event")


async def failed(*plugins: type[Plugin]) -> Told:
    told = Told()
    async with App() as app:
        for plugin in plugins:
            await app.mount(plugin).settled()
        with pytest.raises((ValueError, KeyError, EventModeError, ExceptionGroup)) as caught:
            await app.ctx.waterfall(Weighed(), nothing, on_failure=told)
        raised: tuple[object, ...] = getattr(caught.value, "exceptions", (caught.value,))
        assert raised == (told.failures[-1][1],)
    return told


async def test_the_listener_that_raised_is_told_and_none_it_passed() -> None:
    assert (await failed(Passing, Broken, Passing)).names == ["broken"]


async def test_a_failure_in_a_group_is_still_that_of_the_one_that_raised() -> None:
    assert (await failed(Grouping, Broken)).names == ["broken"]


async def test_a_failure_of_another_kind_is_told_beside_the_first() -> None:
    assert (await failed(Passing, Translating, Broken)).names == ["broken", "translating"]


async def test_an_event_that_cannot_be_passed_on_is_the_fault_of_who_passed_it() -> None:
    told = await failed(Passing, Rewriting, Passing)
    assert told.names == ["rewriting"]
    assert isinstance(told.failures[0][1], EventModeError)


async def test_a_failure_that_is_contained_is_told_all_the_same() -> None:
    told = Told()
    async with App() as app:
        for plugin in (Passing, Containing, Broken):
            await app.mount(plugin).settled()
        assert await app.ctx.waterfall(Weighed(), nothing, on_failure=told) == 1
    assert told.names == ["broken"]


async def test_what_is_no_awaitable_is_told_of_the_listener_that_gave_it() -> None:
    def plain(event: Weighed, next: object) -> int:
        return 1

    told = Told()
    loose: Any = plain
    async with App() as app:
        await app.mount(Passing).settled()
        app.ctx.on(Weighed, loose)
        with pytest.raises(EventModeError):
            await app.ctx.waterfall(Weighed(), nothing, on_failure=told)
    assert told.names == ["root"]


async def test_the_default_is_nobodys() -> None:
    async def broken(event: Weighed) -> int:
        raise ValueError("default")

    told = Told()
    async with App() as app:
        await app.mount(Passing).settled()
        with pytest.raises(ValueError, match="default"):
            await app.ctx.waterfall(Weighed(), broken, on_failure=told)
    assert told.names == []


async def test_who_asks_gets_the_same_result() -> None:
    told = Told()
    async with App() as app:
        assert await app.ctx.waterfall(Weighed(), nothing, on_failure=told) == 0
        await app.mount(Grouping).settled()
        await app.mount(Passing).settled()
        assert await app.ctx.waterfall(Weighed(), nothing, on_failure=told) == 1
    assert told.names == []
