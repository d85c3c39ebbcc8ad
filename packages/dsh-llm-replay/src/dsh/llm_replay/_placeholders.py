"""Placeholders that take text of the request into a scripted answer.

`{{fromRequest:<regex>}}` in any scripted string stands for the last match of the expression in the
text of the request: its first group if it has one, else the whole match. The expression runs on
the `re` engine of the standard library, which can be made to backtrack; scripts are files of the
project's own tests, so the bounds below guard against accidents, not against attackers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

from dsh.llm import (
    ContentBlock,
    LlmRequest,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from dsh.llm_replay.errors import ReplayError

T = TypeVar("T")

MAX_PATTERN: Final = 500
"""Longest expression, in characters."""
MAX_TEXT: Final = 1_000_000
"""How much of the end of the request's text is searched, in characters."""

_OPEN: Final = "{{fromRequest:"
_CLOSE: Final = re.compile(r"\}\}(?!\})")


def fill(value: T, request: LlmRequest) -> T:
    """Return a chunk, an entry or a string with its placeholders replaced.

    Args:
        value: A string, a dataclass, a mapping or a sequence of these; returned as it is where
            it holds no placeholder.
        request: The request whose text is searched.

    Raises:
        ReplayError: Code `BAD_PLACEHOLDER`, if one is not terminated, is no regular expression,
            is too long or matches nothing.
    """
    return cast("T", _fill(value, lambda found: _substitute(found, request)))


def request_text(request: LlmRequest) -> str:
    """Return everything the model reads in a request, oldest first, one piece per line."""
    pieces: list[str] = [] if request.system is None else [request.system]
    for message in request.messages:
        for block in message.content:
            pieces.extend(_texts(block))
    return "\n".join(pieces)


def _fill(value: Any, substitute: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return substitute(value) if _OPEN in value else value
    if isinstance(value, (list, tuple)):
        items = cast("tuple[Any, ...]", value)
        filled = [_fill(item, substitute) for item in items]
        return tuple(filled) if isinstance(value, tuple) else filled
    if isinstance(value, dict):
        mapping = cast("Mapping[Any, Any]", value)
        return {key: _fill(item, substitute) for key, item in mapping.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return _fill_dataclass(value, substitute)
    return value


def _fill_dataclass(value: Any, substitute: Callable[[str], str]) -> Any:
    changes: dict[str, Any] = {}
    for item in fields(value):
        old = getattr(value, item.name)
        new = _fill(old, substitute)
        if item.init and new != old:
            changes[item.name] = new
    return replace(value, **changes) if changes else value


def _substitute(template: str, request: LlmRequest) -> str:
    searched = request_text(request)[-MAX_TEXT:]
    parts: list[str] = []
    position = 0
    while (start := template.find(_OPEN, position)) >= 0:
        parts.append(template[position:start])
        close = _CLOSE.search(template, start + len(_OPEN))
        if close is None:
            raise _bad(f"the placeholder in {template[start : start + 80]!r} is not terminated")
        parts.append(_last_match(template[start + len(_OPEN) : close.start()], searched))
        position = close.end()
    return "".join([*parts, template[position:]])


def _last_match(expression: str, searched: str) -> str:
    if len(expression) > MAX_PATTERN:
        raise _bad(f"a placeholder's expression is longer than {MAX_PATTERN} characters")
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise _bad(f"placeholder {expression!r} is no regular expression: {error}") from error
    found = deque(pattern.finditer(searched), maxlen=1)
    if not found:
        raise _bad(f"placeholder {expression!r} matches nothing in the request")
    last = found[0]
    return (last.group(1) if pattern.groups else last.group()) or ""


def _bad(message: str) -> ReplayError:
    return ReplayError(
        message,
        code=ReplayError.BAD_PLACEHOLDER,
        hint="placeholders are written {{fromRequest:<regex>}}, whole inside one string",
    )


def _texts(block: ContentBlock) -> Iterator[str]:
    match block:
        case TextBlock(text=found) | ReasoningBlock(text=found):
            yield found
        case ToolCallBlock(name=name, arguments=arguments):
            yield name
            yield arguments
        case ToolResultBlock(content=content):
            for inner in content:
                yield from _texts(inner)
        case _:
            return
