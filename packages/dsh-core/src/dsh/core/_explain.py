"""Diagnosis: what every mount is doing, and why what is not active is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dsh.core._discovery import entry_points
from dsh.core._lifecycle import MountState
from dsh.core._mount import Mount

if TYPE_CHECKING:
    from dsh.core._app import App


@dataclass(frozen=True, slots=True)
class MissingService:
    """A service a mount waits for."""

    key: str
    """Key of the service."""
    providers: tuple[str, ...]
    """Installed entry points that could provide it, as `name (distribution)`."""
    waiting_on: str | None
    """The mount that will provide it once it is active, if one has registered it."""


@dataclass(frozen=True, slots=True)
class MountReport:
    """One mount's state and the reason for it."""

    name: str
    """Name of the plugin, or of the row that mounted it."""
    state: MountState
    """What the mount is doing."""
    missing: tuple[MissingService, ...]
    """The services it waits for; empty while it is active."""
    error: Exception | None
    """What its last start raised, if that failed."""
    provides: tuple[str, ...]
    """Keys of the services it provides."""
    effects: tuple[str, ...]
    """Labels of its live effects, oldest first."""

    def __str__(self) -> str:
        line = f"{self.name}: {self.state.value}"
        if self.error is not None:
            line += f" ({type(self.error).__name__}: {self.error})"
        for item in self.missing:
            line += f"\n    waits for service {item.key!r}: {_who(item)}"
        return line


@dataclass(frozen=True, slots=True)
class Explanation:
    """The state of an app. `str()` of it is meant for people."""

    mounts: tuple[MountReport, ...]
    """Every plugin that is mounted, oldest first."""
    cycles: tuple[tuple[str, ...], ...]
    """Groups of mounts that wait for each other's services."""
    waits: tuple[tuple[str, str, float], ...]
    """`(who, for whom, seconds)` for every wait under way."""

    @property
    def inactive(self) -> tuple[MountReport, ...]:
        """The mounts that are not active."""
        return tuple(item for item in self.mounts if item.state is not MountState.ACTIVE)

    def __str__(self) -> str:
        lines = [str(item) for item in self.inactive] or ["every plugin is active"]
        lines += ["cycle: " + " -> ".join((*cycle, cycle[0])) for cycle in self.cycles]
        lines += [f"{a} has waited {s:.1f} s for {b}" for a, b, s in self.waits]
        return "\n".join(lines)


def explain(app: App) -> Explanation:
    """Describe every mount of `app` but its scopes."""
    mounts = [m for m in app.mounts if m.definition.target is not None]
    return Explanation(
        mounts=tuple(_report(m) for m in mounts),
        cycles=tuple(_cycles(mounts)),
        waits=tuple(app.waits.pending()),
    )


def _report(mount: Mount) -> MountReport:
    missing = mount.missing() if mount.state is not MountState.ACTIVE else []
    return MountReport(
        name=mount.name,
        state=mount.state,
        missing=tuple(_missing(mount, key) for key in missing),
        error=mount.error,
        provides=tuple(r.impl.key for r in mount.impls if not r.impl.withdrawn),
        effects=tuple(effect.label for effect in mount.effects),
    )


def _missing(mount: Mount, key: str) -> MissingService:
    impl = mount.app.services.find(key, mount.ctx.realm_of(key))
    points = entry_points(f"dsh.seam.{key}")
    return MissingService(
        key=key,
        providers=tuple(f"{p.name} ({p.dist_name})" for p in points),
        waiting_on=impl.mount.name if impl is not None else None,
    )


def _who(item: MissingService) -> str:
    if item.waiting_on is not None:
        return f"{item.waiting_on!r} provides it but is not active yet"
    if item.providers:
        return "nothing mounted provides it; installed: " + ", ".join(item.providers)
    return "nothing mounted or installed provides it"


def _cycles(mounts: list[Mount]) -> list[tuple[str, ...]]:
    """Find groups of waiting mounts whose missing services are declared by one another."""
    pending = [m for m in mounts if m.state is MountState.PENDING]
    offers: dict[str, Mount] = {}
    for mount in pending:
        target = mount.definition.target
        key = getattr(target, "service_key", None)
        if isinstance(key, str):
            offers[key] = mount
    waits_for = {m: [offers[k] for k in m.missing() if k in offers] for m in pending}
    cycles: list[tuple[str, ...]] = []
    done: set[Mount] = set()
    for start in pending:
        for cycle in _walk(start, waits_for, done):
            cycles.append(tuple(mount.name for mount in cycle))
    return cycles


def _walk(
    start: Mount, waits_for: dict[Mount, list[Mount]], done: set[Mount]
) -> Iterator[list[Mount]]:
    """Follow the waits from `start` depth first, each mount once; yield the cycles met."""
    trail: list[Mount] = []
    ahead = [iter((start,))]
    while ahead:
        mount = next(ahead[-1], None)
        if mount is None:
            ahead.pop()
            if trail:
                done.add(trail.pop())
        elif mount in trail:
            yield trail[trail.index(mount) :]
        elif mount not in done:
            trail.append(mount)
            ahead.append(iter(waits_for[mount]))
