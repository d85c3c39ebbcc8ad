"""What went wrong at the provider: reads its error objects and gives each failure its code."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pydantic_core import from_json

from dsh.core import now_ms, secrets
from dsh.llm import (
    LlmError,
    LlmFailure,
    is_context_window_exceeded,
    is_quota_exceeded,
)
from dsh.llm_deepseek._surrogates import whole
from dsh.llm_deepseek._wire import REQUEST_ID_HEADERS
from dsh.llm_deepseek.errors import ProviderResponse

MESSAGE_CHARS: Final = 1000
"""How much of a provider's message an error shows."""

ERROR_BODY_BYTES: Final = 64 * 1024
"""How much of the body of a refused request is read."""

_UNPRINTABLE: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]+")
_NOT_A_WORD: Final = re.compile(r"[^A-Z0-9]+")

# Words in the `type` and `code` of an error object, in the order in which they are looked for.
_WORDS: Final = (
    (re.compile(r"rate.?limit|too.?many.?requests", re.I), LlmError.RATE_LIMIT),
    (re.compile(r"auth|api.?key|permission|forbidden", re.I), LlmError.AUTH),
    (re.compile(r"server|internal|overload|unavailable|timeout", re.I), LlmError.SERVER),
    (re.compile(r"invalid|bad.?request", re.I), LlmError.INVALID_REQUEST),
)


def aborted() -> LlmError:
    """Return the error of a request whose signal has aborted."""
    return LlmError("the request was aborted", code=LlmError.ABORTED)


def facts_of(request_id: str | None, status: int | None = None) -> LlmFailure | None:
    """Return the facts about a failed request, or None where nothing is known."""
    if request_id is None and status is None:
        return None
    return LlmFailure(status=status, request_id=request_id)


@dataclass(frozen=True, slots=True)
class ProviderError:
    """What a provider says about a failure, in whichever of the common shapes it says it."""

    message: str = ""
    """Its words, safe to show."""
    kind: str = ""
    """Its `type` and `code`."""
    status: int | None = None
    """The HTTP status it names, if its `code` or `status` is one."""

    @classmethod
    def read(cls, value: object) -> ProviderError:
        """Read an error object, or the bare text some servers send instead."""
        if isinstance(value, str):
            return cls(shown(value))
        if not isinstance(value, dict):
            return cls()
        found = cast("dict[str, Any]", value)
        message = found.get("message") or found.get("msg") or found.get("detail") or ""
        words = [str(found[key]) for key in ("type", "code") if found.get(key)]
        status = _status(found.get("status")) or _status(found.get("code"))
        return cls(shown(str(message)), shown(" ".join(words), 200), status)

    @classmethod
    def read_body(cls, body: bytes) -> ProviderError | None:
        """Read the body of an answer; None if it is no JSON object that reports an error."""
        try:
            value = from_json(body)
        except ValueError:
            return None
        if not isinstance(value, dict):
            return None
        found = cast("dict[str, Any]", value)
        if error := found.get("error"):
            return cls.read(error)
        if "choices" not in found and ("message" in found or "detail" in found):
            return cls.read(found)
        return None

    @property
    def text(self) -> str:
        """Everything it says, for the classification."""
        return f"{self.kind} {self.message}"

    def code(self) -> str:
        """Return the code of an error reported inside a stream, where no HTTP status helps."""
        if is_quota_exceeded(self.text):
            return LlmError.QUOTA
        if is_context_window_exceeded(self.text):
            return LlmError.CONTEXT_WINDOW_EXCEEDED
        if self.status is not None and self.status >= 400:
            return code_of_status(self.status, self.text)
        for pattern, code in _WORDS:
            if pattern.search(self.kind):
                return code
        return LlmError.UNKNOWN


def code_of_status(status: int, text: str = "") -> str:
    """Return the code of a refused request.

    Args:
        status: The HTTP status.
        text: What the provider says, see `ProviderError.text`.
    """
    if status in (401, 403):
        return LlmError.AUTH
    if status == 413:
        return LlmError.INVALID_REQUEST
    # Before the remaining statuses: an empty account also comes as 400, 429 or 503.
    if status == 402 or is_quota_exceeded(text):
        return LlmError.QUOTA
    if status == 429:
        return LlmError.RATE_LIMIT
    if status in (400, 422):
        exceeded = is_context_window_exceeded(text)
        return LlmError.CONTEXT_WINDOW_EXCEEDED if exceeded else LlmError.INVALID_REQUEST
    return LlmError.SERVER if status >= 500 else f"HTTP_{status}"


def code_of_word(word: str) -> str:
    """Return the code of a finish reason nobody here knows."""
    return _NOT_A_WORD.sub("_", word.upper()).strip("_")[:64] or LlmError.UNKNOWN


def refused(
    status: int, reason: str, headers: Mapping[str, str], body: bytes, provider: str, key_name: str
) -> LlmError:
    """Make the error of a request that was answered with an HTTP status outside 2xx.

    Args:
        status: The HTTP status.
        reason: The words of the status line.
        headers: The response headers.
        body: At most `ERROR_BODY_BYTES` of the body.
        provider: Who answered, for the message.
        key_name: Where the key came from, for the hint.
    """
    error = ProviderError.read_body(body)
    text = shown(body.decode("utf-8", "replace"), ERROR_BODY_BYTES)
    said = error.message if error is not None and error.message else ""
    # A page of HTML is no statement about the account, a short plain text may be.
    clue = error.text if error is not None else text if "<" not in text else ""
    code = code_of_status(status, clue)
    failure = LlmFailure(status, retry_after_ms(headers), request_id(headers))
    result = LlmError(
        f"{provider} answered HTTP {status}: {said or reason or 'no reason given'}",
        code=code,
        hint=_hint(status, code, headers, key_name),
        failure=failure,
    )
    result.__cause__ = ProviderResponse(status, text)
    return result


def no_stream(status: int, kind: str, body: bytes, provider: str, name: str | None) -> LlmError:
    """Make the error of a request that succeeded with something else than a stream.

    Args:
        status: The HTTP status.
        kind: The content type.
        body: At most `ERROR_BODY_BYTES` of the body.
        provider: Who answered, for the message.
        name: The provider's name for the request.
    """
    error = ProviderError.read_body(body)
    text = shown(body.decode("utf-8", "replace"), ERROR_BODY_BYTES)
    if error is not None:
        said = error.message or error.kind or "no reason given"
        message, code, hint = f"{provider} reported an error: {said}", error.code(), None
    else:
        message = (
            f"{provider} answered with {kind or 'no content type'} instead of an event stream: "
            f"{text[:120]}"
        )
        code, hint = LlmError.MALFORMED_RESPONSE, "check base_url, and whether the server streams"
    reported = None if error is None else error.status
    result = LlmError(
        message, code=code, hint=hint, failure=LlmFailure(reported or status, request_id=name)
    )
    result.__cause__ = ProviderResponse(status, text)
    return result


def _hint(status: int, code: str, headers: Mapping[str, str], key_name: str) -> str | None:
    if code == LlmError.AUTH:
        return f"check the key in {key_name}"
    if code == LlmError.QUOTA:
        return "top up the account, or use the key of another one"
    if 300 <= status < 400:
        place = shown(headers.get("location", ""), 200) or "its new place"
        return f"redirects are not followed, set base_url to {place}"
    if status == 404:
        return "check base_url and the name of the model"
    return None


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's name for the request."""
    for name in REQUEST_ID_HEADERS:
        if value := shown(headers.get(name, ""), 200).strip():
            return value
    return None


def retry_after_ms(headers: Mapping[str, str]) -> float | None:
    """Return how long the provider asks to wait, in milliseconds, if that is a time to come."""
    value = headers.get("retry-after", "").strip()
    if not value:
        return None
    try:
        wait = float(value) * 1000
    except ValueError:
        wait = _until(value)
    return wait if math.isfinite(wait) and wait > 0 else None


def _until(date: str) -> float:
    # Costs some milliseconds to import and is needed after few failures only.
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(date).timestamp() * 1000 - now_ms()
    except (ValueError, OverflowError):
        return 0.0


def shown(text: str, limit: int = MESSAGE_CHARS) -> str:
    """Return foreign text as it may be shown: no secrets, no control characters, not too long."""
    clean = _UNPRINTABLE.sub(" ", whole(secrets.redact(text)))
    return clean if len(clean) <= limit else f"{clean[:limit]}…"


def _status(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) == 3:
        value = int(value)
    return value if isinstance(value, int) and 100 <= value <= 599 else None
