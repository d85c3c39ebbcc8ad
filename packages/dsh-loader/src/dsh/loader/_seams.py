"""Which installed provider serves a service key, and why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

from dsh.core import EntryPoint, PluginLoadError, entry_point_groups, entry_points
from dsh.core.json import JsonObject
from dsh.loader._suggest import did_you_mean, nearest
from dsh.loader.errors import SeamError

SeamReason = Literal["named", "only-extra", "app-default", "bundle-default", "only-installed"]

_GROUP: Final = "dsh.seam."
_WHEELS: Final = {"bash": "dsh-bash-local"}
"""First-party wheels to name when nothing installed serves a key."""

logger = logging.getLogger("dsh.loader")


@dataclass(frozen=True, slots=True)
class SeamChoice:
    """The provider picked for one service key."""

    key: str
    """The service key."""
    provider: EntryPoint
    """The entry point of the provider."""
    reason: SeamReason
    """Which rule picked it."""
    detail: str
    """The reason in words."""
    candidates: tuple[EntryPoint, ...]
    """Everything installed that could have served."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """The default providers that one installed bundle or app declares."""

    owner: str
    """Name of the `dsh.defaults` entry point, the plugin name of a bundle or the name of an app."""
    dist_name: str
    """The wheel that declares them."""
    providers: Mapping[str, str]
    """Provider name by service key."""


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


def candidates_for(key: str) -> tuple[EntryPoint, ...]:
    """Return the installed providers of a service key, without importing them."""
    return entry_points(f"dsh.seam.{key}")


def find_provider(key: str, name: str, candidates: Iterable[EntryPoint]) -> EntryPoint | None:
    """Return the candidate called `name`, or `<key>-<name>`; the exact name wins."""
    known = {point.name: point for point in candidates}
    return known.get(name) or known.get(f"{key.replace('_', '-')}-{name}")


def short_name(key: str, name: str) -> str:
    """Return a provider's name without the leading service key."""
    return name.removeprefix(f"{key.replace('_', '-')}-")


def choose_provider(
    key: str,
    *,
    named: str | None = None,
    where: str = "the deployment",
    app: str | None = None,
    bundle: str | None = None,
    defaults: Iterable[Defaults] | None = None,
) -> SeamChoice:
    """Pick the provider of a service key.

    In this order: the one the deployment names; the only one that no installed bundle or app
    names as its default, so that installing a sibling is enough; the default of the app being
    started; the default of its bundle; the only one installed.

    Args:
        key: The service key.
        named: What the deployment names under `seams`.
        where: Where it does, for messages.
        app: Name of the app being started.
        bundle: Name of its bundle.
        defaults: Declared defaults; the installed ones if not given.

    Raises:
        SeamError: Nothing serves the key, the named provider is not installed, or several serve
            it equally well.
    """
    candidates = candidates_for(key)
    if named is not None:
        point = find_provider(key, named, candidates)
        if point is None:
            raise _not_installed(key, named, where, candidates)
        return SeamChoice(key, point, "named", f"named in {where}", candidates)
    declared = tuple(installed_defaults() if defaults is None else defaults)
    if not candidates:
        raise no_provider(key, declared, app=app, bundle=bundle)
    usual = {item.providers[key] for item in declared if key in item.providers}
    extra = [point for point in candidates if point.name not in usual]
    if len(extra) == 1:
        detail = "the only installed provider that is nobody's default"
        return SeamChoice(key, extra[0], "only-extra", detail, candidates)
    if len(extra) > 1:
        raise _ambiguous(key, extra)
    choice = _by_default(key, candidates, declared, app=app, bundle=bundle)
    if choice is not None:
        return choice
    if len(candidates) == 1:
        detail = "the only installed provider"
        return SeamChoice(key, candidates[0], "only-installed", detail, candidates)
    raise _ambiguous(key, candidates)


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
            point = find_provider(key, item.providers[key], candidates)
            if point is not None:
                detail = f"the default of {item.dist_name}"
                return SeamChoice(key, point, reason, detail, candidates)
    return None


def no_provider(
    key: str,
    defaults: Iterable[Defaults],
    *,
    app: str | None = None,
    bundle: str | None = None,
) -> SeamError:
    """Describe a service key that nothing installed serves."""
    ranked = sorted(defaults, key=lambda item: (item.owner != app, item.owner != bundle))
    usual = next((item.providers[key] for item in ranked if key in item.providers), None)
    wheel = _WHEELS.get(key) or (f"dsh-{usual}" if usual is not None else None)
    hint = (
        f"install {wheel}"
        if wheel is not None
        else f"install a wheel that offers an entry point in the group dsh.seam.{key}"
    )
    return SeamError(key, f"nothing installed provides the service {key!r}", hint=hint)


def _not_installed(
    key: str, named: str, where: str, candidates: tuple[EntryPoint, ...]
) -> SeamError:
    if not candidates:
        return _no_such_seam(key, named, where)
    names = [point.name for point in candidates]
    return SeamError(
        key,
        f"{where}: seams.{key}: no installed provider of {key!r} is called {named!r}",
        candidates=names,
        hint=did_you_mean(named, names, what=f"installed providers of {key!r}"),
    )


def _no_such_seam(key: str, named: str, where: str) -> SeamError:
    close = nearest(key, (group[len(_GROUP) :] for group in entry_point_groups(_GROUP)))
    hint = f"did you mean {close!r}?" if close else no_provider(key, installed_defaults()).hint
    return SeamError(
        key,
        f"{where}: seams.{key}: nothing installed provides {key!r}, not {named!r} either",
        hint=hint,
    )


def _ambiguous(key: str, candidates: Iterable[EntryPoint]) -> SeamError:
    points = list(candidates)
    listed = ", ".join(f"{p.name} (from {p.dist_name} {p.dist_version})" for p in points)
    example = points[0].name
    return SeamError(
        key,
        f"several installed wheels provide the service {key!r}: {listed}",
        candidates=[point.name for point in points],
        hint=f"pick one in dsh.yaml: seams: {{{key}: {example}}}",
    )


def provider_config(
    key: str, section: JsonObject, provider: str, candidates: Iterable[EntryPoint]
) -> JsonObject:
    """Return the settings of a provider out of the section of its service key.

    Fields at the top are shared by all providers; a mapping under a provider's name belongs to
    that one and lies over them.
    """
    names: dict[str, str] = {}
    for point in candidates:
        names[short_name(key, point.name)] = point.name
    for point in candidates:
        names[point.name] = point.name
    result: JsonObject = {}
    own: JsonObject = {}
    for name, value in section.items():
        if name in names and isinstance(value, dict):
            if names[name] == provider:
                own.update(value)
        else:
            result[name] = value
    return {**result, **own}
