"""Why a turn ended."""

from __future__ import annotations

from dataclasses import dataclass

from dsh.llm import LlmFailure
from dsh.session._open_union import OpenUnion, Undeclared, Whole

__all__ = [
    "Aborted",
    "Completed",
    "Disposed",
    "Failed",
    "Interrupted",
    "MaxTokens",
    "MaxTurnRequests",
    "OtherReason",
    "Refusal",
    "Rejected",
    "TurnEndReason",
]


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
