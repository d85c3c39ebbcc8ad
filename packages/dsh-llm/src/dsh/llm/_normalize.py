"""Makes one kind of failure out of whatever an adapter raises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from dsh.core import secrets
from dsh.llm._chunks import FinishReason, LlmFailure

_MAX_LINKS: Final = 32
_MAX_MEMBERS: Final = 8


def normalize_failure(error: object, *, aborted: bool = False) -> FinishReason:
    """Return the finish an exception stands for; never raises, whatever the exception is like.

    The code is the exception's own if that is a non-empty string, else `UNKNOWN`. Facts are taken
    from a `failure` the exception holds: an `LlmFailure`, or a mapping in its wire form whose
    `code` is the exception's. An exception group with one exception in it counts as that one.

    Args:
        error: What was raised.
        aborted: The caller had aborted the request, so the finish is of kind `aborted`.
    """
    error = _single(error)
    code = _code(error)
    message = secrets.redact(_message(error))
    failure = _attached(error, code)
    kind = "aborted" if aborted or code == "ABORTED" else "error"
    if aborted:
        code = "ABORTED"
    return FinishReason(kind, message, code or "UNKNOWN", failure)


def error_chain(error: object) -> str:
    """Render an exception with everything that led to it, outermost first, for diagnosis.

    Causes are joined by ` <- `; the members of an exception group stand in parentheses. A cause
    that only repeats the message of what it caused is left out, a cycle is followed once.
    """
    parts: list[str] = []
    for link in _links(error, set()):
        if not parts or not _repeats(parts[-1], link):
            parts.append(link)
    return secrets.redact(" <- ".join(parts))


def _members(error: object) -> tuple[BaseException, ...]:
    # By its type: `isinstance` would ask a hostile object what it is.
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members = _read(error, "exceptions")
    return cast("tuple[BaseException, ...]", members) if isinstance(members, tuple) else ()


def _single(error: object) -> object:
    while len(members := _members(error)) == 1:
        error = members[0]
    return error


def _read(error: object, name: str) -> Any:
    """Read an attribute of an exception that may do anything when looked at."""
    try:
        return getattr(error, name, None)
    except Exception:  # noqa: BLE001 - a hostile exception must not fail the failure path
        return None


def _code(error: object) -> str | None:
    code = _read(error, "code")
    return _storable(code) if isinstance(code, str) and code else None


def _message(error: object) -> str:
    return (
        _shown(error)
        or f"the model call failed with {type(error).__name__}, which does not say why"
    )


def _shown(error: object) -> str:
    try:
        return _storable(str(error).strip())
    except Exception:  # noqa: BLE001 - as above
        return ""


def _storable(text: str) -> str:
    """Spell out halves of characters, which a file name may hold and no log takes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _attached(error: object, code: str | None) -> LlmFailure | None:
    try:
        # Only data the exception holds itself: a property could compute anything.
        return _facts(vars(error).get("failure"), code)
    except Exception:  # noqa: BLE001 - no ordinary object, facts out of range, or hostile
        return None


def _facts(held: Any, code: str | None) -> LlmFailure | None:
    if isinstance(held, LlmFailure):
        return held
    if not isinstance(held, Mapping) or code is None:
        return None
    facts = cast("Mapping[str, Any]", held)
    if facts.get("code") != code:
        return None
    return LlmFailure(facts.get("status"), facts.get("retryAfterMs"), facts.get("requestId"))


def _links(error: object, seen: set[int]) -> Iterator[str]:
    current: object = error
    while current is not None and id(current) not in seen and len(seen) < _MAX_LINKS:
        seen.add(id(current))
        yield _link(current, seen)
        current = _cause(current)


def _link(error: object, seen: set[int]) -> str:
    name, text = type(error).__name__, _shown(error)
    own = f"{name}: {text}" if text else name
    members = _members(error)
    if not members:
        return own
    shown = [" <- ".join(_links(member, seen)) for member in members[:_MAX_MEMBERS]]
    if len(members) > _MAX_MEMBERS:
        shown.append(f"and {len(members) - _MAX_MEMBERS} more")
    return f"{own} ({'; '.join(part for part in shown if part)})"


def _cause(error: object) -> object:
    cause = _read(error, "__cause__")
    if cause is not None:
        return cause
    return None if _read(error, "__suppress_context__") else _read(error, "__context__")


def _repeats(outer: str, inner: str) -> bool:
    text = inner.partition(": ")[2]
    return bool(text) and outer.endswith(text)
