"""What the checkers must infer from the kernel's public names; run through pyright and mypy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import assert_type

from dsh.core import (
    App,
    Emit,
    Next,
    NextStream,
    Plugin,
    PluginConfig,
    Serial,
    Service,
    StreamWaterfall,
    Waterfall,
    inject,
    on,
    settings,
)


class Shell(Service, ABC, key="shell"):
    class Config(PluginConfig):
        cwd: str = "."

    config = settings(Config)

    @abstractmethod
    async def run(self, command: str) -> int: ...


class LocalShell(Shell):
    class Config(Shell.Config):
        grace_ms: int = 200

    config = settings(Config)

    async def run(self, command: str) -> int:
        return assert_type(self.config.grace_ms, int)


@dataclass(frozen=True, slots=True)
class Changed(Emit, name="typing/changed"):
    value: int


@dataclass(frozen=True, slots=True)
class Decide(Waterfall[bool], name="typing/decide"):
    value: int


@dataclass(frozen=True, slots=True)
class Ask(Serial[str], name="typing/ask"):
    pass


@dataclass(frozen=True, slots=True)
class Flow(StreamWaterfall[bytes], name="typing/flow"):
    pass


class Consumer(Plugin):
    shell = inject(Shell)
    maybe = inject(Shell, optional=True)

    async def start(self) -> None:
        assert_type(self.shell, Shell)
        assert_type(self.maybe, Shell | None)
        assert_type(self.ctx[Shell], Shell)
        assert_type(self.ctx.get(Shell), Shell | None)

    @on(Changed)
    def changed(self, event: Changed) -> None:
        assert_type(event.value, int)

    @on(Decide)
    async def decide(self, event: Decide, next: Next[bool]) -> bool:
        return assert_type(await next(), bool)

    @on(Ask)
    async def ask(self, event: Ask) -> str | None:
        return None

    @on(Flow)
    async def flow(self, event: Flow, next: NextStream[bytes]) -> AsyncGenerator[bytes, None]:
        async for item in next():
            yield assert_type(item, bytes)


async def dispatch(app: App) -> None:
    async def default(event: Decide) -> bool:
        return True

    assert_type(await app.ctx.waterfall(Decide(1), default), bool)
    assert_type(await app.ctx.serial(Ask()), str | None)
    app.ctx.emit(Changed(1))
