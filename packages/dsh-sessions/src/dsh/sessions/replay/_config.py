"""The configuration of a spine that plays: the deployment's, but for what would be in the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, cast

from dsh.core import PluginConfig, PluginLike
from dsh.session import SessionEvent
from dsh.sessions.replay._steps import steps_of

__all__ = ["config_to_play"]

_AGENTS: Final = "agents"
_LIMIT: Final = "max_parallel_tools"


def config_to_play(bundle: PluginLike, config: object, events: Sequence[SessionEvent]) -> object:
    """Return the configuration with which a bundle can play a log again.

    Agents that it would make by itself are left out: they would only be in the way. How many calls
    may overlap is raised to what the log shows, where the bundle has such a limit: a session does
    not differ because the limit was another one then.

    Args:
        bundle: The plugin that mounts the spine.
        config: Its configuration, a mapping or an instance of its model; None for the defaults.
        events: The log.
    """
    model = getattr(bundle, "Config", None)
    fields = (
        model.model_fields if isinstance(model, type) and issubclass(model, PluginConfig) else {}
    )
    changes: dict[str, object] = {}
    if _LIMIT in fields:
        limit = _said(config, _LIMIT, fields[_LIMIT].default)
        widest = _widest(events)
        if isinstance(limit, int) and limit < widest:
            changes[_LIMIT] = widest
    if isinstance(config, PluginConfig):
        if _AGENTS in fields:
            changes[_AGENTS] = ()
        return config.model_copy(update=changes)
    if config is not None and not isinstance(config, Mapping):
        return config  # the bundle says what is wrong with it
    said = cast("Mapping[str, object]", config or {})
    kept = {name: value for name, value in said.items() if name != _AGENTS}
    return {**kept, **changes} or None


def _said(config: object, name: str, default: object) -> object:
    if isinstance(config, Mapping):
        return cast("Mapping[str, object]", config).get(name, default)
    return getattr(config, name, default)


def _widest(events: Sequence[SessionEvent]) -> int:
    """Return how many calls overlapped at most."""
    return max(
        (len(group) for step in steps_of(events).values() for group in step.groups), default=0
    )
