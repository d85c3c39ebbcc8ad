"""What goes wrong in a first plugin is said where it is written, in words that help."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from dsh.core import (
    App,
    Emit,
    EventModeError,
    Failure,
    InvalidEffectError,
    InvalidPluginError,
    MissingServiceError,
    Parallel,
    Plugin,
    PluginConfig,
    Serial,
    Service,
    Waterfall,
    inject,
    on,
)


@dataclass(frozen=True, slots=True)
class Rung(Emit, name="misuse/rung"):
    """The bell rang."""


@dataclass(frozen=True, slots=True)
class Priced(Waterfall[int], name="misuse/priced"):
    """What it costs."""


@dataclass(frozen=True, slots=True)
class Sought(Serial[int], name="misuse/sought"):
    """Who has one."""


@dataclass(frozen=True, slots=True)
class Sold(Parallel, name="misuse/sold"):
    """It is gone."""


async def list_price(event: Priced) -> int:
    return 1


def plain(event: object, next: object = None) -> int:
    return 2


def test_a_listener_without_an_event_is_refused_where_it_is_declared() -> None:
    decorate: Any = on
    with pytest.raises(EventModeError, match=r"gate is no event class; .*@on\(Event\)"):

        @decorate
        async def gate(self: object, event: Priced, next: object) -> int:
            return 2


async def test_a_listener_of_no_event_is_refused() -> None:
    async with App() as app:
        ctx: Any = app.ctx
        with pytest.raises(EventModeError, match="'misuse/priced' is no event class"):
            ctx.on("misuse/priced", list_price)


async def test_a_listener_takes_what_it_is_called_with() -> None:
    async def without_next(event: Priced) -> int:
        return 1

    def with_next(event: Rung, next: object) -> None: ...

    async def nothing() -> int:
        return 1

    async def with_a_keyword(event: Priced, next: object, *, more: object) -> int:
        return 1

    wrong: Any
    async with App() as app:
        for event, wrong, shape in (
            (Priced, without_next, "(event, next)"),
            (Priced, nothing, "(event, next)"),
            (Priced, with_a_keyword, "(event, next)"),
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

    def named_default(event: Rung, *, label: str = "keyword") -> None:
        heard.append(label)

    class Knocker:
        def __call__(self, event: Rung) -> None:
            heard.append("object")

    async with App() as app:
        for listener in (defaulted, anything, partial(named, "partial"), named_default, Knocker()):
            app.ctx.on(Rung, listener)
        app.ctx.emit(Rung())
    assert heard == ["own", 1, "partial", "keyword", "object"]


async def test_a_decision_that_is_not_awaitable_says_what_to_write() -> None:
    wrong: Any = plain
    async with App() as app:
        app.ctx.on(Priced, wrong)
        with pytest.raises(EventModeError, match=r"plain gave .* a int, .*`async def`"):
            await app.ctx.waterfall(Priced(), list_price)


async def test_an_answer_that_is_not_awaitable_says_what_to_write() -> None:
    wrong: Any = plain
    async with App() as app:
        app.ctx.on(Sought, wrong)
        with pytest.raises(EventModeError, match="`async def`"):
            await app.ctx.serial(Sought())
        app.ctx.on(Sold, wrong)
        with pytest.raises(ExceptionGroup) as raised:
            await app.ctx.parallel(Sold())
        assert isinstance(raised.value.exceptions[0], EventModeError)


async def test_a_plain_function_may_return_what_it_awaits() -> None:
    def passes_on(event: object, next: Callable[[], Any]) -> Any:
        return next()

    async with App() as app:
        app.ctx.on(Priced, passes_on)
        assert await app.ctx.waterfall(Priced(), list_price) == 1


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
        with pytest.raises(InvalidEffectError, match="not its result"):
            app.ctx.defer(wrong)
        with pytest.raises(InvalidEffectError, match="the function and its arguments"):
            app.ctx.spawn(wrong)
        wrong.close()


class Bell(Service, key="misuse_bell"):
    """Rings."""


@pytest.mark.parametrize("provided", [True, False])
async def test_a_service_that_is_not_injected_is_told_with_what_to_write(provided: bool) -> None:
    class Forgetful(Plugin):
        async def start(self) -> None:
            this: Any = self
            this.misuse_bell.ring()

    async with App() as app:
        if provided:
            await app.mount(Bell).settled()
        failures: list[Failure] = []
        app.on_error(app.ctx, failures.append)
        with pytest.raises(MissingServiceError) as caught:
            await app.mount(Forgetful).settled()
        assert caught.value.code == MissingServiceError.UNDECLARED
        assert "`misuse_bell = inject(Bell)`" in (caught.value.hint or "")
        assert isinstance(caught.value.__cause__, AttributeError)
        assert [failure.error for failure in failures] == [caught.value]


@pytest.mark.parametrize("attribute", ["misuse_bel", "misuse_gong"])
async def test_an_attribute_that_is_no_missing_service_is_told_as_it_is(attribute: str) -> None:
    class Gong(Service, key="misuse_gong"):
        """Is injected, but under another name."""

    class Clumsy(Plugin):
        gong = inject(Gong)

        async def start(self) -> None:
            getattr(self, attribute)

    async with App() as app:
        await app.mount(Gong).settled()
        with pytest.raises(AttributeError, match=attribute):
            await app.mount(Clumsy).settled()


async def test_an_attribute_of_something_else_is_told_as_it_is() -> None:
    class Clumsy(Plugin):
        async def start(self) -> None:
            this: Any = self.ctx
            this.misuse_bell.ring()

    async with App() as app:
        await app.mount(Bell).settled()
        with pytest.raises(AttributeError, match="misuse_bell"):
            await app.mount(Clumsy).settled()


async def test_a_config_that_no_settings_reach_is_refused() -> None:
    class Fixed(Plugin):
        class Config(PluginConfig):
            depth: int = 1

        config = Config()

    async with App() as app:
        with pytest.raises(InvalidPluginError, match=r"config = settings\(Config\)"):
            await app.mount(Fixed, {"depth": 2}).settled()


async def test_a_constructor_without_the_context_is_refused() -> None:
    class Hasty(Plugin):
        def __init__(self) -> None:
            self.seen = 0

    async with App() as app:
        with pytest.raises(InvalidPluginError, match=r"begin in `async def start\(self\)`"):
            await app.mount(Hasty).settled()
