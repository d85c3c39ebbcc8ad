"""From the end of a turn to an exit code and a sentence."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, Final

from dsh.agent import Blocked, Dropped, OutcomeReason, TurnOutcome
from dsh.cli._exit_codes import BLOCKED, ERROR, INTERRUPTED, LIMIT, OK
from dsh.cli._view import Report
from dsh.session import (
    Aborted,
    Completed,
    Disposed,
    Failed,
    MaxTokens,
    MaxTurnRequests,
    OtherReason,
    Refusal,
    Rejected,
    SessionEvent,
    TurnEnd,
    event_to_wire,
)

_FILTERED: Final = "CONTENT_FILTER"
"""Code of an answer that the provider's policy cut off."""

_HINTS: Final = {
    "AUTH": "`dsh doctor` shows where the key comes from, `dsh login` stores another",
    "INVALID_CREDENTIAL": "copy the key again, without spaces and quotes",
    "MISSING_CREDENTIAL": "set DEEPSEEK_API_KEY, or store a key with `dsh login`",
    "QUOTA": "top up the account, or use another model with --model",
    "RATE_LIMIT": "wait a moment and try again",
    "TRANSPORT": "check the network, the proxy settings and base_url",
}


def report_outcome(outcome: TurnOutcome, text: str | None = None) -> Report:
    """Return the report of a turn.

    Args:
        outcome: How it ended.
        text: The final answer, where it is not the outcome's text.
    """
    reason = outcome.reason
    exit_code, message, code = _meaning(reason)
    return Report(
        exit_code=exit_code,
        reason=reason_to_wire(reason),
        text=outcome.text if text is None else text,
        usage=outcome.usage,
        message=message,
        code=code,
        hint=_wait_hint(reason) or _HINTS.get(code or "") or _limit_hint(reason),
    )


def reason_to_wire(reason: OutcomeReason) -> dict[str, Any]:
    """Return a reason as the log writes it."""
    if isinstance(reason, Dropped | Blocked):
        return {"kind": reason.kind, **asdict(reason)}
    event = SessionEvent(0, 0, TurnEnd(1, reason))
    wire: dict[str, Any] = event_to_wire(event)["data"]["reason"]
    return wire


def _meaning(reason: OutcomeReason) -> tuple[int, str | None, str | None]:
    """Return exit code, message and failure code."""
    match reason:
        case Completed():
            return OK, None, None
        case Failed():
            code = f" [{reason.code}]" if reason.code else ""
            exit_code = BLOCKED if reason.code == _FILTERED else ERROR
            return exit_code, reason.message + code, reason.code
        case MaxTokens():
            return LIMIT, "the answer was cut off at the model's output limit", None
        case MaxTurnRequests():
            return LIMIT, f"stopped at the limit {reason.limit} = {reason.value}", None
        case Rejected() | Blocked():
            return BLOCKED, f"the task was rejected: {reason.reason}", None
        case Refusal():
            return BLOCKED, "the model declined to answer", None
        case Aborted():
            told = f": {reason.reason}" if reason.reason else ""
            return INTERRUPTED, f"cancelled{told}", None
        case Dropped():
            return ERROR, f"the task was not taken up: {reason.reason}", None
        case Disposed():
            return ERROR, "the agent was disposed while it worked", None
        case _:
            return ERROR, f"the turn ended with {reason.kind!r}{_detail(reason)}", None


def _detail(reason: OutcomeReason) -> str:
    """Return what a reason of a kind that some wheel added says under `message`."""
    told: object = getattr(reason, "message", None)
    if isinstance(reason, OtherReason):
        told = reason.data.get("message")
    return f": {told}" if isinstance(told, str) and told else ""


def _wait_hint(reason: OutcomeReason) -> str | None:
    """Return how long the provider asked to wait, if it did."""
    failure = reason.failure if isinstance(reason, Failed) else None
    if failure is None or failure.retry_after_ms is None:
        return None
    return f"the provider asks to wait {math.ceil(failure.retry_after_ms / 1000)} s; then try again"


def _limit_hint(reason: OutcomeReason) -> str | None:
    match reason:
        case MaxTokens():
            return "allow more with --max-tokens, or ask for less at a time"
        case MaxTurnRequests():
            return f"allow more with --{reason.limit.replace('_', '-')}"
        case _:
            return None
