"""The rule that picks one of several installed wheels, for a service key and for the bundle."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from dsh.core import EntryPoint, PluginLoadError, entry_point_groups, entry_points
from dsh.loader._suggest import did_you_mean, nearest
from dsh.loader.errors import SeamError

SeamReason = Literal["named", "only-extra", "app-default", "bundle-default", "only-installed"]

_SEAM_PREFIX: Final = "dsh.seam."
_WHEELS: Final = {"bash": "dsh-bash-local", "bundle": "dsh-agent-core"}
"""First-party wheels to name when nothing installed serves a key."""

logger = logging.getLogger("dsh.loader")


@dataclass(frozen=True, slots=True)
class Slot:
    """Something that exactly one of the installed candidates fills, with the words for it."""

    key: str
    """The service key, or `bundle`: what `dsh.defaults` call it."""
    group: str
    """The entry-point group of the candidates."""
    path: str
    """Where a deployment names one."""
    noun: str
    """What a candidate is."""
    of: str
    """What it is a candidate for, where the noun does not say it."""
    offer: str
    """What a wheel with a candidate provides."""

    @property
    def candidates(self) -> tuple[EntryPoint, ...]:
        """Everything installed that could fill it, not imported."""
        return entry_points(self.group)

    def line(self, name: str) -> str:
        """Return the line of `dsh.yaml` that picks `name`."""
        outer, _, inner = self.path.partition(".")
        return f"{outer}: {{{inner}: {name}}}" if inner else f"{outer}: {name}"


def seam_slot(key: str) -> Slot:
    """Return the slot of a service key."""
    group, path = f"{_SEAM_PREFIX}{key}", f"seams.{key}"
    return Slot(key, group, path, "provider", f" of {key!r}", f"the service {key!r}")


BUNDLE: Final = Slot("bundle", "dsh.bundles", "bundle", "bundle", "", "a bundle")
"""The slot of the bundle."""


def installed_seam_keys() -> tuple[str, ...]:
    """Return the service keys that some installed wheel provides, sorted."""
    return tuple(group.removeprefix(_SEAM_PREFIX) for group in entry_point_groups(_SEAM_PREFIX))


@dataclass(frozen=True, slots=True)
class SeamChoice:
    """The provider picked for one service key, or the bundle picked for a deployment."""

    key: str
    """The service key, or `bundle`."""
    provider: EntryPoint
    """The entry point that was picked."""
    reason: SeamReason
    """Which rule picked it."""
    detail: str
    """The reason in words."""
    candidates: tuple[EntryPoint, ...]
    """Everything installed that could have been picked."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """What one installed bundle or app picks where nobody says otherwise."""

    owner: str
    """Name of the `dsh.defaults` entry point, the plugin name of a bundle or the name of an app."""
    dist_name: str
    """The wheel that declares them."""
    providers: Mapping[str, str]
    """Provider name by service key; under `bundle` the name of a bundle."""


def installed_defaults() -> tuple[Defaults, ...]:
    """Return what installed bundles and apps declare; a broken declaration is logged and left out.

    Declarations are imported, so they live in modules that import nothing heavy.
    """
    found: list[Defaults] = []
    for point in entry_points("dsh.defaults"):
        try:
            value = point.load()
        except PluginLoadError as error:
            logger.warning("defaults of %s are ignored: %s", point.dist_name, error)
            continue
        if not isinstance(value, Mapping):
            logger.warning("defaults of %s are ignored: not a mapping", point.dist_name)
            continue
        providers = {str(k): str(v) for k, v in cast("Mapping[object, object]", value).items()}
        found.append(Defaults(point.name, point.dist_name, providers))
    return tuple(found)


def find_candidate(key: str, name: str, candidates: Iterable[EntryPoint]) -> EntryPoint | None:
    """Return the candidate called `name`, or `<key>-<name>`; the exact name wins."""
    known = {point.name: point for point in candidates}
    return known.get(name) or known.get(f"{key.replace('_', '-')}-{name}")


def choose(
    slot: Slot,
    *,
    named: str | None = None,
    where: str = "the deployment",
    app: str | None = None,
    bundle: str | None = None,
    defaults: Iterable[Defaults] | None = None,
) -> SeamChoice:
    """Pick one of the candidates of a slot, by the rule that `choose_provider` tells."""
    candidates = slot.candidates
    if named is not None:
        point = find_candidate(slot.key, named, candidates)
        if point is None:
            raise _not_installed(slot, named, where, candidates)
        return SeamChoice(slot.key, point, "named", f"named in {where}", candidates)
    declared = tuple(installed_defaults() if defaults is None else defaults)
    if not candidates:
        raise no_candidate(slot, declared, app=app, bundle=bundle)
    usual = {item.providers[slot.key] for item in declared if slot.key in item.providers}
    extra = [point for point in candidates if point.name not in usual]
    if len(extra) == 1:
        detail = f"the only installed {slot.noun} that is nobody's default"
        return SeamChoice(slot.key, extra[0], "only-extra", detail, candidates)
    if len(extra) > 1:
        raise _ambiguous(slot, extra)
    choice = _by_default(slot.key, candidates, declared, app=app, bundle=bundle)
    if choice is not None:
        return choice
    if len(candidates) == 1:
        detail = f"the only installed {slot.noun}"
        return SeamChoice(slot.key, candidates[0], "only-installed", detail, candidates)
    raise _ambiguous(slot, candidates)


def _by_default(
    key: str,
    candidates: tuple[EntryPoint, ...],
    declared: tuple[Defaults, ...],
    *,
    app: str | None,
    bundle: str | None,
) -> SeamChoice | None:
    owners: list[tuple[str | None, SeamReason]] = [
        (app, "app-default"),
        (bundle, "bundle-default"),
    ]
    for owner, reason in owners:
        for item in declared:
            if item.owner != owner or key not in item.providers:
                continue
            point = find_candidate(key, item.providers[key], candidates)
            if point is not None:
                detail = f"the default of {item.dist_name}"
                return SeamChoice(key, point, reason, detail, candidates)
    return None


def no_candidate(
    slot: Slot,
    defaults: Iterable[Defaults],
    *,
    app: str | None = None,
    bundle: str | None = None,
) -> SeamError:
    """Describe a slot that nothing installed can fill."""
    ranked = sorted(defaults, key=lambda item: (item.owner != app, item.owner != bundle))
    usual = next((item.providers[slot.key] for item in ranked if slot.key in item.providers), None)
    wheel = _WHEELS.get(slot.key) or (f"dsh-{usual}" if usual is not None else None)
    hint = (
        f"install {wheel}"
        if wheel is not None
        else f"install a wheel that offers an entry point in the group {slot.group}"
    )
    return SeamError(slot.key, f"nothing installed provides {slot.offer}", hint=hint)


def _not_installed(
    slot: Slot, named: str, where: str, candidates: tuple[EntryPoint, ...]
) -> SeamError:
    names = [point.name for point in candidates]
    if not names and slot.group.startswith(_SEAM_PREFIX):
        return _no_such_seam(slot, named, where)
    if f"dsh-{named}" == _WHEELS.get(slot.key):
        hint = f"install dsh-{named}"
    else:
        hint = did_you_mean(named, names, what=f"installed {slot.noun}s{slot.of}")
    return SeamError(
        slot.key,
        f"{where}: {slot.path}: no installed {slot.noun}{slot.of} is called {named!r}",
        candidates=names,
        hint=hint,
    )


def _no_such_seam(slot: Slot, named: str, where: str) -> SeamError:
    close = nearest(slot.key, installed_seam_keys())
    hint = f"did you mean {close!r}?" if close else no_candidate(slot, installed_defaults()).hint
    return SeamError(
        slot.key,
        f"{where}: {slot.path}: nothing installed provides {slot.key!r}, not {named!r} either",
        hint=hint,
    )


def _ambiguous(slot: Slot, candidates: Iterable[EntryPoint]) -> SeamError:
    points = list(candidates)
    listed = ", ".join(f"{p.name} (from {p.dist_name} {p.dist_version})" for p in points)
    return SeamError(
        slot.key,
        f"several installed wheels provide {slot.offer}: {listed}",
        candidates=[point.name for point in points],
        hint=f"pick one in dsh.yaml: {slot.line(points[0].name)}",
    )
