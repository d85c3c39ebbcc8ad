"""Strict YAML: the JSON subset of YAML 1.2, built from parser events.

Only plain data comes out: no tags, no merge keys, no duplicate keys, a bounded number of nodes
however aliases multiply, and the line of every key for error messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from dsh.core.json import JsonValue
from dsh.loader.errors import ConfigFileError

KeyPath = tuple[str, ...]
"""Where a value sits: mapping keys and, in lists, decimal positions."""

MAX_NODES: Final = 50_000
"""Most values one document may hold, aliases counted as often as they are used."""


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed document."""

    value: JsonValue
    """The data."""
    lines: Mapping[KeyPath, int]
    """The line, from 1, of each key and list item."""


def parse_yaml(text: str, *, where: str) -> Document:
    """Parse one strict YAML document.

    Args:
        text: The document; empty text is `null`.
        where: Name of the file or flag for error messages.

    Raises:
        ConfigFileError: Stage `parse`, with the line.
    """
    # a tenth of a second of import time: only those pay who have a file
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    from dsh.loader._yaml_builder import Builder

    reader = YAML(typ="safe", pure=True)
    try:
        events = cast("Iterable[Any]", reader.parse(text))  # pyright: ignore[reportUnknownMemberType]
        return Builder(where).build(events)
    except MarkedYAMLError as error:
        raise _unreadable(error, where) from None
    except (YAMLError, RecursionError, ValueError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigFileError("parse", where, f"not readable as YAML: {detail}") from None


def _unreadable(error: Any, where: str) -> ConfigFileError:
    mark = error.problem_mark or error.context_mark
    line = f", line {mark.line + 1}" if mark is not None else ""
    problem = error.problem or error.context or "unknown problem"
    return ConfigFileError("parse", f"{where}{line}", f"not readable as YAML: {problem}")
