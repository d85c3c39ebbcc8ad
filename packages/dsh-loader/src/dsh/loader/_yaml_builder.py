"""Builds plain data from the events of a YAML parser."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from dsh.core.json import MAX_DEPTH, JsonValue
from dsh.loader._scalars import resolve_plain
from dsh.loader._yaml import MAX_NODES, Document, KeyPath
from dsh.loader.errors import ConfigFileError


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not closed yet."""

    value: dict[str, JsonValue] | list[JsonValue]
    path: KeyPath
    anchor: str | None
    nodes: int = 1
    key: str | None = None
    first_lines: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True)
class _Anchored:
    value: JsonValue
    nodes: int


class Builder:
    """Turns events into values; iterative, so that no input can exhaust the stack."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._stack: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._lines: dict[KeyPath, int] = {}
        self._total = 0
        self._documents = 0
        self._result: JsonValue = None

    def build(self, events: Iterable[Any]) -> Document:
        """Return the one document of a stream of events.

        Raises:
            ConfigFileError: Stage `parse`, with the line.
        """
        for event in events:
            kind = type(event).__name__
            line = event.start_mark.line + 1 if event.start_mark is not None else 1
            self._take(kind, event, line)
        return Document(self._result, self._lines)

    def _take(self, kind: str, event: Any, line: int) -> None:
        if kind == "DocumentStartEvent":
            self._documents += 1
            if self._documents > 1:
                raise self._error(line, "a second document starts here; one is allowed")
        elif kind == "ScalarEvent":
            self._scalar(event, line)
        elif kind == "AliasEvent":
            self._alias(event, line)
        elif kind == "MappingStartEvent":
            self._open({}, event, line)
        elif kind == "SequenceStartEvent":
            self._open([], event, line)
        elif kind in {"MappingEndEvent", "SequenceEndEvent"}:
            self._close(line)

    def _scalar(self, event: Any, line: int) -> None:
        self._refuse_tag(event, line)
        text = cast("str", event.value)
        plain = event.style is None
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if plain and text == "<<":
                raise self._error(line, "merge keys (<<) are not supported; write the keys out")
            if event.anchor is not None:
                self._anchors[event.anchor] = _Anchored(text, 1)
            self._key(top, text, line)
            return
        try:
            value = resolve_plain(text) if plain else text
        except ValueError as error:
            raise self._error(line, str(error)) from None
        self._place(value, event.anchor, 1, line)

    def _key(self, top: _Open, text: str, line: int) -> None:
        if text in top.first_lines:
            raise self._error(
                line, f"key {text!r} occurs twice (first in line {top.first_lines[text]})"
            )
        top.first_lines[text] = line
        top.key = text

    def _alias(self, event: Any, line: int) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise self._error(line, f"alias *{event.anchor} stands inside or before its anchor")
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise self._error(line, "an alias cannot be a key")
        self._place(anchored.value, None, anchored.nodes, line)

    def _open(self, value: dict[str, JsonValue] | list[JsonValue], event: Any, line: int) -> None:
        self._refuse_tag(event, line)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            raise self._error(line, "a key must be a string")
        if len(self._stack) >= MAX_DEPTH:
            raise self._error(line, f"nested deeper than {MAX_DEPTH} levels")
        path = self._path(top)
        if path:
            self._lines.setdefault(path, line)
        self._stack.append(_Open(value, path, event.anchor))

    def _close(self, line: int) -> None:
        done = self._stack.pop()
        self._place(done.value, done.anchor, done.nodes, line, record=False)

    def _place(
        self, value: JsonValue, anchor: str | None, nodes: int, line: int, *, record: bool = True
    ) -> None:
        self._total += nodes if record else 1
        if self._total > MAX_NODES:
            raise self._error(line, f"more than {MAX_NODES} values once aliases are expanded")
        if anchor is not None:
            self._anchors[anchor] = _Anchored(value, nodes)
        if not self._stack:
            self._result = value
            return
        top = self._stack[-1]
        if record:
            self._lines.setdefault(self._path(top), line)
        top.nodes += nodes
        if isinstance(top.value, dict):
            top.value[cast("str", top.key)] = value
            top.key = None
        else:
            top.value.append(value)

    def _path(self, top: _Open | None) -> KeyPath:
        if top is None:
            return ()
        if isinstance(top.value, dict):
            return (*top.path, cast("str", top.key))
        return (*top.path, str(len(top.value)))

    def _refuse_tag(self, event: Any, line: int) -> None:
        tag = event.tag
        if tag is None:
            return
        if tag in {"!!js", "!expr", "tag:yaml.org,2002:js"}:
            raise self._error(
                line,
                f"{_shown(tag)} is not evaluated here",
                hint="a deployment is data; use ${env:NAME}, ${env:NAME:-default} or ${file:path}",
            )
        raise self._error(line, f"tags are not supported, found {_shown(tag)}")

    def _error(self, line: int, detail: str, *, hint: str | None = None) -> ConfigFileError:
        return ConfigFileError("parse", f"{self._where}, line {line}", detail, hint=hint)


def _shown(tag: str) -> str:
    prefix = "tag:yaml.org,2002:"
    return f"!!{tag[len(prefix) :]}" if tag.startswith(prefix) else tag
