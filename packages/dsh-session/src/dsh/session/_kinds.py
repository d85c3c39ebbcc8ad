"""Tagged values inside payloads: who wrote a message, what opened a turn, why it ended.

Each family is open. A wheel adds a kind by declaring a class::

    @dataclass(frozen=True, slots=True)
    class Poll(TurnTrigger, kind="acme-poll"):
        \"\"\"It was time to look.\"\"\"

        feed_url: str

A kind that no live class declares is read as the family's `Other…` class and written back
unchanged; so is one whose declared class does not fit what was written.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsh.llm import LlmFailure
from dsh.session._open_union import OpenUnion, Undeclared, Whole

__all__ = [
    "Aborted",
    "Completed",
    "Disposed",
    "Failed",
    "InjectionTrigger",
    "Interrupted",
    "MaxTokens",
    "MaxTurnRequests",
    "MessageSource",
    "MessageTrigger",
    "OtherReason",
    "OtherSource",
    "OtherTrigger",
    "PluginSource",
    "RecordTrigger",
    "Refusal",
    "Rejected",
    "TurnEndReason",
    "TurnTrigger",
    "UserSource",
]


# --- who a message comes from -------------------------------------------------------------


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


# --- what opened a turn -------------------------------------------------------------------


class TurnTrigger(OpenUnion, family="turn trigger"):
    """What opened a turn; a wheel adds a kind with `class Poll(TurnTrigger, kind="acme-poll")`.

    A loop opens its turns with the three kinds it knows. Another kind is for a loop with other
    ways to begin, and for a plugin that writes a whole turn itself while none is open.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class MessageTrigger(TurnTrigger, kind="message"):
    """Queued prompts; `source` is that of the first one."""

    source: MessageSource
    """Who sent the first prompt."""


@dataclass(frozen=True, slots=True)
class InjectionTrigger(TurnTrigger, kind="injection"):
    """Context injected while no turn was open: a turn of its own without a model call."""

    source: MessageSource
    """Who gave the context."""


@dataclass(frozen=True, slots=True)
class RecordTrigger(TurnTrigger, kind="record"):
    """A log-only event recorded while no turn was open: a turn of its own around it."""


@dataclass(frozen=True, slots=True)
class OtherTrigger(Undeclared, TurnTrigger):
    """A trigger kind that some plugin added."""


# --- why a turn ended ---------------------------------------------------------------------


class TurnEndReason(OpenUnion, family="turn-end reason"):
    """Why a turn ended; a wheel adds one with `class Quiet(TurnEndReason, kind="acme-quiet")`.

    A reason that is not `Completed` counts as one that did not complete: `Agent.ask` raises, and
    `dsh run` exits with 1 and shows the text under `message`, where there is one.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Completed(TurnEndReason, kind="completed"):
    """The model stopped of its own accord and nothing asked for more."""


@dataclass(frozen=True, slots=True)
class Aborted(TurnEndReason, kind="aborted"):
    """Cancelled; `reason` is the first cause given."""

    reason: str | None = None
    """The cause, where one was given."""


@dataclass(frozen=True, slots=True)
class Failed(TurnEndReason, kind="error"):
    """Something went wrong inside the turn (wire kind `error`)."""

    step: Whole
    """The step it happened in; 0 before the first one was announced."""
    message: str
    """What went wrong, for a person."""
    code: str | None = None
    """Stable code of the error, where it has one."""
    failure: LlmFailure | None = None
    """Status, retry delay and request id where the model's provider gave them."""


@dataclass(frozen=True, slots=True)
class Disposed(TurnEndReason, kind="disposed"):
    """The agent was torn down while the turn ran."""


@dataclass(frozen=True, slots=True)
class MaxTokens(TurnEndReason, kind="max-tokens"):
    """The model hit its output limit; possible tool calls of that answer were dropped."""


@dataclass(frozen=True, slots=True)
class Rejected(TurnEndReason, kind="rejected"):
    """Every prompt of the turn was vetoed before the model saw it."""

    reason: str
    """What the policy said of the last of them."""


@dataclass(frozen=True, slots=True)
class Interrupted(TurnEndReason, kind="interrupted"):
    """The process died inside the turn; written by the repair on load, never by a loop."""


@dataclass(frozen=True, slots=True)
class Refusal(TurnEndReason, kind="refusal"):
    """The model declined to answer."""


@dataclass(frozen=True, slots=True)
class MaxTurnRequests(TurnEndReason, kind="max-turn-requests"):
    """A limit on one turn was reached."""

    limit: str
    """Name of the limit, `max_steps` or `max_turn_tokens` for example."""
    value: Whole
    """The limit's value."""


@dataclass(frozen=True, slots=True)
class OtherReason(Undeclared, TurnEndReason):
    """A turn-end kind that some plugin added."""
