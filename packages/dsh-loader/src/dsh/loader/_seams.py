"""Which installed provider serves a service key, and what its settings are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from dsh.core import EntryPoint
from dsh.core.json import JsonObject
from dsh.loader._choice import Defaults, SeamChoice, choose, seam_slot

SPINE_KEYS: Final = frozenset(
    {"agent_loop", "agents", "invariants", "llm", "sessions", "system_prompt", "tools"}
)
"""Keys of the services that a bundle provides; they are no seams, so nothing is chosen."""


def candidates_for(key: str) -> tuple[EntryPoint, ...]:
    """Return the installed providers of a service key, without importing them."""
    return seam_slot(key).candidates


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
    return choose(
        seam_slot(key), named=named, where=where, app=app, bundle=bundle, defaults=defaults
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
