"""Who a message comes from."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.session._open_union import OpenUnion, Undeclared

__all__ = [
    "MessageSource",
    "OtherSource",
    "PluginSource",
    "UserSource",
]


class MessageSource(OpenUnion, family="message source"):
    """Who a message comes from; a wheel adds a kind with `class Cron(MessageSource, kind="cron")`.

    The model sees the kind of a source and nothing else of it.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class UserSource(MessageSource, kind="user"):
    """The person, typing or through a front door."""


@dataclass(frozen=True, slots=True)
class PluginSource(MessageSource, kind="plugin"):
    """A plugin: hooks, compaction, reminders, every non-human producer."""

    plugin: str
    """Name of the plugin; never shown to the model."""


@dataclass(frozen=True, slots=True)
class OtherSource(Undeclared, MessageSource):
    """A source kind that some plugin added."""
