"""Tagged values inside payloads: who wrote a message, what opened a turn, why it ended.

Each union is open: a kind nobody here knows is read as the union's `Other…` class and written
back unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

from dsh.llm import LlmFailure
from dsh.session._open_union import OpenUnion, Tagged, Whole

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


@dataclass(frozen=True, slots=True)
class UserSource(Tagged):
    """The person, typing or through a front door."""

    kind: ClassVar[str] = "user"


@dataclass(frozen=True, slots=True)
class PluginSource(Tagged):
    """A plugin: hooks, compaction, reminders, every non-human producer."""

    kind: ClassVar[str] = "plugin"
    plugin: str
    """Name of the plugin; never shown to the model."""


@dataclass(frozen=True, slots=True)
class OtherSource:
    """A source kind that some plugin added."""

    kind: str
    data: Mapping[str, Any]
    """The remaining fields, as on the wire."""


MessageSource: TypeAlias = Annotated[
    UserSource | PluginSource | OtherSource, OpenUnion((UserSource, PluginSource), OtherSource)
]


# --- what opened a turn -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageTrigger(Tagged):
    """Queued prompts; `source` is that of the first one."""

    kind: ClassVar[str] = "message"
    source: MessageSource


@dataclass(frozen=True, slots=True)
class InjectionTrigger(Tagged):
    """Context injected while no turn was open: a turn of its own without a model call."""

    kind: ClassVar[str] = "injection"
    source: MessageSource


@dataclass(frozen=True, slots=True)
class RecordTrigger(Tagged):
    """A log-only event recorded while no turn was open: a turn of its own around it."""

    kind: ClassVar[str] = "record"


@dataclass(frozen=True, slots=True)
class OtherTrigger:
    """A trigger kind that some plugin added."""

    kind: str
    data: Mapping[str, Any]


TurnTrigger: TypeAlias = Annotated[
    MessageTrigger | InjectionTrigger | RecordTrigger | OtherTrigger,
    OpenUnion((MessageTrigger, InjectionTrigger, RecordTrigger), OtherTrigger),
]


# --- why a turn ended ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completed(Tagged):
    """The model stopped of its own accord and nothing asked for more."""

    kind: ClassVar[str] = "completed"


@dataclass(frozen=True, slots=True)
class Aborted(Tagged):
    """Cancelled; `reason` is the first cause given."""

    kind: ClassVar[str] = "aborted"
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Failed(Tagged):
    """Something went wrong inside the turn (wire kind `error`)."""

    kind: ClassVar[str] = "error"
    step: Whole
    """The step it happened in; 0 before the first one was announced."""
    message: str
    code: str | None = None
    failure: LlmFailure | None = None
    """Status, retry delay and request id where the model's provider gave them."""


@dataclass(frozen=True, slots=True)
class Disposed(Tagged):
    """The agent was torn down while the turn ran."""

    kind: ClassVar[str] = "disposed"


@dataclass(frozen=True, slots=True)
class MaxTokens(Tagged):
    """The model hit its output limit; possible tool calls of that answer were dropped."""

    kind: ClassVar[str] = "max-tokens"


@dataclass(frozen=True, slots=True)
class Rejected(Tagged):
    """Every prompt of the turn was vetoed before the model saw it."""

    kind: ClassVar[str] = "rejected"
    reason: str


@dataclass(frozen=True, slots=True)
class Interrupted(Tagged):
    """The process died inside the turn; written by the repair on load, never by a loop."""

    kind: ClassVar[str] = "interrupted"


@dataclass(frozen=True, slots=True)
class Refusal(Tagged):
    """The model declined to answer."""

    kind: ClassVar[str] = "refusal"


@dataclass(frozen=True, slots=True)
class MaxTurnRequests(Tagged):
    """A limit on one turn was reached."""

    kind: ClassVar[str] = "max-turn-requests"
    limit: str
    """Name of the limit, `max_steps` or `max_turn_tokens` for example."""
    value: Whole
    """The limit's value."""


@dataclass(frozen=True, slots=True)
class OtherReason:
    """A turn-end kind that some plugin added."""

    kind: str
    data: Mapping[str, Any]


TurnEndReason: TypeAlias = Annotated[
    Completed
    | Aborted
    | Failed
    | Disposed
    | MaxTokens
    | Rejected
    | Interrupted
    | Refusal
    | MaxTurnRequests
    | OtherReason,
    OpenUnion(
        (
            Completed,
            Aborted,
            Failed,
            Disposed,
            MaxTokens,
            Rejected,
            Interrupted,
            Refusal,
            MaxTurnRequests,
        ),
        OtherReason,
    ),
]
