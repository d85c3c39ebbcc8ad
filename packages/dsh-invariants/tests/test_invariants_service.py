"""The service: what is selected, how checks are registered, how they leave."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

import anyio
import pytest

from dsh.core import App, ConfigError, Context, DshError, Emit, InactiveContextError, Mount, Service
from dsh.invariants import (
    InvariantError,
    InvariantRegistrationError,
    Invariants,
    InvariantsConfig,
    Reporter,
    Violation,
)
from dsh.invariants._selection import is_selected


@dataclass(frozen=True, slots=True)
class Ping(Emit, name="test-invariants/ping", errors="raise"):
    """Something to check."""

    value: int


async def open_service(app: App, **config: Any) -> Invariants:
    await app.mount(Invariants, config).settled()
    return app[Invariants]


def no_negative(ctx: Context, report: Reporter) -> None:
    ctx.on(Ping, lambda event: report.check(event.value >= 0, f"{event.value} is negative"))


@pytest.mark.parametrize(
    ("config", "name", "selected"),
    [
        ({}, "dsh-session", True),
        ({"allow": (), "block": ()}, "dsh-session", True),
        ({"enabled": False}, "dsh-session", False),
        ({"enabled": False, "allow": ("session",)}, "dsh-session", False),
        ({"allow": ("sess",)}, "dsh-session", True),
        ({"allow": ("^session",)}, "dsh-session", False),
        ({"allow": ("^dsh-session$",)}, "dsh-session-store", False),
        ({"allow": ("Session",)}, "dsh-session", False),
        ({"allow": ("session", "agent")}, "dsh-agent", True),
        ({"block": ("agent",)}, "dsh-agent-loop", False),
        ({"block": ("^agent",)}, "dsh-agent", True),
        ({"allow": ("agent",), "block": ("loop",)}, "dsh-agent-loop", False),
        ({"allow": ("agent",), "block": ("agent",)}, "dsh-agent", False),
        ({"allow": ("nothing-like-it",)}, "dsh-agent", False),
        ({"block": ("nothing-like-it",)}, "dsh-agent", True),
    ],
)
def test_what_is_selected(config: dict[str, Any], name: str, selected: bool) -> None:
    # case: NV-01
    assert is_selected(InvariantsConfig(**config), name) is selected


async def test_a_name_is_reserved_even_if_its_checks_are_left_out() -> None:
    # case: NV-01
    async with App() as app:
        service = await open_service(app, enabled=False)
        assert "dsh-session" in service.names
        installed: list[str] = []
        effect = service.register(app.ctx, "mine", lambda ctx, report: installed.append("yes"))
        await effect
        assert installed == []
        with pytest.raises(InvariantRegistrationError, match="already registered") as caught:
            service.register(app.ctx, "mine", no_negative)
        assert caught.value.code == InvariantRegistrationError.ALREADY_REGISTERED
        app.ctx.emit(Ping(-1))
        await effect.dispose()
        await service.register(app.ctx, "mine", no_negative)


@pytest.mark.parametrize(
    ("patterns", "token"),
    [
        (("",), "blank"),
        (("  ",), "blank"),
        ((" a",), "spaces"),
        (("a ",), "spaces"),
        (("\ta",), "spaces"),
        (("a", "b", "a"), "twice"),
        (("[",), "regular expression"),
        (("(?P<x",), "regular expression"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("field", ["allow", "block"])
async def test_a_bad_pattern_fails_the_start(
    field: str, patterns: tuple[str, ...], token: str
) -> None:
    # case: NV-02
    async with App() as app:
        mount = app.mount(Invariants, {field: patterns})
        with pytest.raises(ConfigError, match=rf"{field}.*{token}"):
            await mount.settled()
        assert app.get(Invariants) is None


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", None], ids=repr)
async def test_a_bad_name_is_refused(name: Any) -> None:
    # case: NV-02
    async with App() as app:
        service = await open_service(app)
        before = service.names
        with pytest.raises(InvariantRegistrationError) as caught:
            service.register(app.ctx, name, no_negative)
        assert caught.value.code == InvariantRegistrationError.BAD_NAME
        assert service.names == before


async def test_a_failing_check_names_its_package() -> None:
    # case: NV-03
    async with App() as app:
        service = await open_service(app)
        await service.register(app.ctx, "dsh-ping", no_negative)
        app.ctx.emit(Ping(1))
        with pytest.raises(InvariantError) as caught:
            app.ctx.emit(Ping(-1))
        error = caught.value
        assert isinstance(error, DshError)
        assert (error.code, error.package) == ("INVARIANT", "dsh-ping")
        assert str(error) == 'invariant violated by "dsh-ping": -1 is negative'
        assert service.violations == (Violation("dsh-ping", "-1 is negative"),)


def fails_at_once(ctx: Context, report: Reporter) -> None:
    no_negative(ctx, report)
    raise RuntimeError("at once")


async def fails_later(ctx: Context, report: Reporter) -> None:
    no_negative(ctx, report)
    await anyio.lowlevel.checkpoint()
    raise RuntimeError("later")


async def fails_inside(ctx: Context, report: Reporter) -> AsyncGenerator[None, None]:
    no_negative(ctx, report)
    raise RuntimeError("inside")
    yield


@pytest.mark.parametrize("install", [fails_at_once, fails_later, fails_inside])
async def test_a_failing_installer_leaves_nothing(install: Any) -> None:
    # case: NV-04
    async with App() as app:
        service = await open_service(app)
        with pytest.raises(RuntimeError):
            await service.register(app.ctx, "mine", install)
        assert "mine" not in service.names
        app.ctx.emit(Ping(-1))
        await service.register(app.ctx, "mine", no_negative)
        with pytest.raises(InvariantError):
            app.ctx.emit(Ping(-1))


async def test_a_vetoed_installation_leaves_nothing() -> None:
    # case: NV-04
    async with App() as app:
        service = await open_service(app)

        def veto(mount: Mount) -> None:
            if mount.name == "invariants-of-mine":
                raise DshError("not this one", code="VETO")

        effect = app.on_mount(app.ctx, veto)
        with pytest.raises(DshError, match="not this one"):
            service.register(app.ctx, "mine", no_negative)
        assert "mine" not in service.names
        effect.dispose_nowait()
        await service.register(app.ctx, "mine", no_negative)


async def test_a_name_stays_reserved_until_its_checks_are_gone() -> None:
    # case: NV-05
    async with App() as app:
        service = await open_service(app)
        release = anyio.Event()
        closing = anyio.Event()

        async def install(ctx: Context, report: Reporter) -> None:
            async def cleanup() -> None:
                closing.set()
                await release.wait()

            ctx.defer(cleanup)

        effect = await service.register(app.ctx, "mine", install)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(effect.dispose)
            await closing.wait()
            with pytest.raises(InvariantRegistrationError):
                service.register(app.ctx, "mine", no_negative)
            release.set()
        assert "mine" not in service.names
        await service.register(app.ctx, "mine", no_negative)


async def test_a_service_that_is_gone_takes_no_registration() -> None:
    # case: NV-06
    async with App() as app:
        mount = app.mount(Invariants)
        await mount.settled()
        service = app[Invariants]
        await mount.dispose()
        with pytest.raises(InactiveContextError) as caught:
            service.register(app.ctx, "mine", no_negative)
        assert caught.value.code == "INACTIVE_EFFECT"
        assert "mine" not in service.names
        with pytest.raises(InactiveContextError):
            service.register(app.ctx, "left-out", no_negative, level="full")
        assert "left-out" not in service.names


async def test_an_owner_that_is_gone_registers_nothing() -> None:
    # case: NV-06
    class Key:
        pass

    async with App() as app:
        service = await open_service(app)
        scope = app.ctx.scope(Key())
        await scope.dispose()
        with pytest.raises(InactiveContextError):
            service.register(scope.ctx, "mine", no_negative)
        assert "mine" not in service.names
        app.ctx.emit(Ping(-1))


async def test_checks_leave_with_their_owner_or_with_the_service() -> None:
    async with App() as app:
        mount = app.mount(Invariants)
        await mount.settled()

        async def companion(ctx: Context, config: object) -> None:
            await app[Invariants].register(ctx, "mine", no_negative)

        owner = app.mount(companion)
        await owner.settled()
        with pytest.raises(InvariantError):
            app.ctx.emit(Ping(-1))
        await owner.dispose()
        app.ctx.emit(Ping(-1))
        await app[Invariants].register(app.ctx, "mine", no_negative)
        with pytest.raises(InvariantError):
            app.ctx.emit(Ping(-1))
        await mount.dispose()
        app.ctx.emit(Ping(-1))


class Needed(Service, key="test_needed"):
    """A service some checks need."""


async def test_checks_wait_for_what_they_need() -> None:
    async with App() as app:
        service = await open_service(app)
        await service.register(app.ctx, "mine", no_negative, needs=(Needed,))
        app.ctx.emit(Ping(-1))
        mount = app.mount(Needed)
        await mount.settled()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(InvariantError):
            app.ctx.emit(Ping(-1))
        await mount.dispose()
        app.ctx.emit(Ping(-1))


async def test_the_level_selects_and_is_told() -> None:
    async with App() as app:
        service = await open_service(app)
        levels: list[str] = []
        await service.register(app.ctx, "b", lambda ctx, report: levels.append(report.level))
        await service.register(app.ctx, "f", lambda ctx, report: levels.append("f"), level="full")
        assert service.level == "basic"
        assert levels == ["basic"]


async def test_the_environment_sets_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSH_INVARIANTS", "full")
    async with App() as app:
        service = await open_service(app)
        levels: list[str] = []
        await service.register(app.ctx, "f", lambda ctx, report: levels.append("f"), level="full")
        assert service.level == "full"
        assert levels == ["f"]
    monkeypatch.setenv("DSH_INVARIANTS", "basic")
    async with App() as app:
        assert (await open_service(app, level="full")).level == "basic"
    monkeypatch.setenv("DSH_INVARIANTS", "sometimes")
    async with App() as app:
        with pytest.raises(ConfigError, match="sometimes"):
            await open_service(app)


async def test_the_spine_is_registered_by_the_service() -> None:
    async with App() as app:
        service = await open_service(app)
        assert service.names == (
            "dsh-agent",
            "dsh-agent-loop",
            "dsh-core",
            "dsh-llm",
            "dsh-session",
            "dsh-system-prompt",
            "dsh-tools",
        )
