"""The service `invariants`: who checks what, and what happens when a check fails."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NoReturn, TypeAlias

from dsh.core import ConfigError, ConfigIssue, Context, Effect, Mount, Service, settings
from dsh.invariants._selection import InvariantsConfig, Level, is_selected
from dsh.invariants.errors import InvariantError, InvariantRegistrationError

__all__ = ["Installer", "Invariants", "Reporter", "Violation"]

_LEVEL_VARIABLE: Final = "DSH_INVARIANTS"
_REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class Violation:
    """One broken rule, remembered for whoever looks after the fact."""

    package: str
    """Name under which the rule was registered."""
    message: str
    """What was found, in one sentence."""


class Reporter:
    """What an installer reports through."""

    __slots__ = ("_violations", "level", "name")

    def __init__(self, name: str, level: Level, violations: deque[Violation]) -> None:
        self.name = name
        """Name of the set of checks."""
        self.level: Level = level
        """The level that checks run at."""
        self._violations = violations

    def fail(self, message: str) -> NoReturn:
        """Report a broken rule.

        Raises:
            InvariantError: Always.
        """
        self._violations.append(Violation(self.name, message))
        raise InvariantError(self.name, message)

    def check(self, holds: bool, message: str) -> None:
        """Report a broken rule unless it holds.

        Raises:
            InvariantError: `holds` is false.
        """
        if not holds:
            self.fail(message)


Installer: TypeAlias = Callable[[Context, Reporter], object]
"""Registers listeners on the context it is given; sync, async, or an async generator with one
`yield`. What it registers leaves with the service or with whoever registered it."""


class Invariants(Service, key="invariants"):
    """Runs checks of what must always hold, and makes a broken rule loud at once.

    The spine's own checks are registered by the service itself. A plugin registers its own with
    `register`; nobody has to.
    """

    name: ClassVar[str] = "invariants"
    Config = InvariantsConfig
    config = settings(InvariantsConfig)

    async def start(self) -> None:
        """Register the checks of the spine."""
        # imported here: the checks know the whole spine, the service knows none of it
        from dsh.invariants._spine import SPINE

        self._level: Level = _level(self.config)
        self._names: set[str] = set()
        self._violations: deque[Violation] = deque(maxlen=_REMEMBERED)
        for row in SPINE:
            await self.register(self.ctx, row.name, row.install, needs=row.needs, level=row.level)

    @property
    def level(self) -> Level:
        """The level that checks run at."""
        return self._level

    @property
    def violations(self) -> tuple[Violation, ...]:
        """The last broken rules, oldest first; also those whose error somebody swallowed."""
        return tuple(self._violations)

    @property
    def names(self) -> tuple[str, ...]:
        """Every registered name, sorted; also those whose checks are left out."""
        return tuple(sorted(self._names))

    def register(
        self,
        ctx: Context,
        name: str,
        install: Installer,
        *,
        needs: tuple[Any, ...] = (),
        level: Level = "basic",
    ) -> Effect:
        """Register a set of checks. Await the effect to be sure that they are in place.

        The name is taken even if configuration leaves the checks out, and until they are gone
        completely. They leave with `ctx` or with the service, whichever goes first.

        Args:
            ctx: Owner of the registration.
            name: The distribution whose rules these are, `dsh-session` for example.
            install: Registers the listeners.
            needs: Services without which there is nothing to check; installed while all are there.
            level: The lowest level at which these checks run.

        Returns:
            The registration. Awaiting it raises what the installer raised; nothing of the
            registration is left then.

        Raises:
            InvariantRegistrationError: Code `BAD_NAME` or `ALREADY_REGISTERED`.
            InactiveContextError: `ctx` or the service is unloading or gone.
        """
        self._reserve(name)
        child: Mount | None = None
        try:
            self.ctx.owner.check_accepting(f"invariants of {name!r}")
            if is_selected(self.config, name) and (level == "basic" or self._level == "full"):
                child = self._install(name, install, needs)
            return ctx.effect(lambda: self._hold(name, child), f"invariants of {name}")
        except Exception:
            if child is not None:
                child.request_dispose()
            self._names.discard(name)
            raise

    def _reserve(self, name: str) -> None:
        if type(name) is not str or not name or any(char.isspace() for char in name):
            raise InvariantRegistrationError(
                f"{name!r} is no name for a set of invariants",
                hint="use the name of your distribution, without spaces",
            )
        if name in self._names:
            raise InvariantRegistrationError(
                f"invariants of {name!r} are already registered",
                code=InvariantRegistrationError.ALREADY_REGISTERED,
                hint="dispose of the other registration, and wait for it",
            )
        self._names.add(name)

    def _install(self, name: str, install: Installer, needs: tuple[Any, ...]) -> Mount:
        reporter = Reporter(name, self._level, self._violations)

        def body(ctx: Context) -> object:
            return install(ctx, reporter)

        return self.ctx.when(needs, body, name=f"invariants-of-{name}")

    async def _hold(self, name: str, child: Mount | None) -> AsyncGenerator[Any, None]:
        async def release() -> None:
            if child is not None:
                await child.dispose()
            self._names.discard(name)

        yield release
        if child is not None:
            await child.settled()


def _level(config: InvariantsConfig) -> Level:
    wanted = os.environ.get(_LEVEL_VARIABLE, "")
    if wanted == "basic":
        return "basic"
    if wanted == "full":
        return "full"
    if wanted:
        issue = ConfigIssue((_LEVEL_VARIABLE,), f"must be basic or full, not {wanted!r}")
        raise ConfigError("invariants", [issue])
    return config.level
