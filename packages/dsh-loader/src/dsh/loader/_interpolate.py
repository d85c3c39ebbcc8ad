"""`${env:NAME}`, `${env:NAME:-default}` and `${file:path}` inside the strings of a deployment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dsh.core import secrets
from dsh.core.json import JsonObject, JsonValue
from dsh.loader._yaml import KeyPath
from dsh.loader.errors import InterpolationError
from dsh.paths import StateFileError, read_private

_EXPRESSION: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}|\$\{")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET_KEY: Final = re.compile(
    r"(?:^|[_-])(?:key|apikey|secret|token|password|passwd|credentials?)$", re.IGNORECASE
)
_SECRET_VARIABLE: Final = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL", re.IGNORECASE)
_FORMS: Final = "write ${env:NAME}, ${env:NAME:-default} or ${file:path}; $${ is a literal ${"


class _Absent:
    """The value of a key that is not there after all."""


_ABSENT: Final = _Absent()


def is_secret_path(path: KeyPath) -> bool:
    """Whether the last named key of `path` says that its value is a secret."""
    names = [part for part in path if not part.isdecimal()]
    return bool(names) and _SECRET_KEY.search(names[-1]) is not None


@dataclass(slots=True)
class Interpolator:
    """Resolves the expressions of one layer.

    Args:
        label: How messages name the layer.
        lines: The line of each path, where the layer is a file.
        environ: Variables to read.
        folder: Where relative `${file:}` paths start.
    """

    label: str
    lines: Mapping[KeyPath, int]
    environ: Mapping[str, str]
    folder: Path
    written: dict[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    """Every string with an expression, as it stands in the layer."""

    def resolve(self, data: JsonObject) -> JsonObject:
        """Return a copy of `data` with every expression replaced.

        A key or list item whose whole value is an unset variable is left out.

        Raises:
            InterpolationError: An expression is malformed, names a missing file, or names an
                unset variable inside a longer string.
        """
        return self._object(data, ())

    def _object(self, data: JsonObject, path: KeyPath) -> JsonObject:
        result: JsonObject = {}
        for key, item in data.items():
            value = self._value(item, (*path, key))
            if not isinstance(value, _Absent):
                result[key] = value
        return result

    def _value(self, value: JsonValue, path: KeyPath) -> JsonValue | _Absent:
        if isinstance(value, str):
            return self._text(value, path) if "${" in value else value
        if isinstance(value, dict):
            return self._object(value, path)
        if isinstance(value, list):
            items = [self._value(item, (*path, str(i))) for i, item in enumerate(value)]
            return [item for item in items if not isinstance(item, _Absent)]
        return value

    def _text(self, text: str, path: KeyPath) -> JsonValue | _Absent:
        self.written[path] = text
        parts: list[str] = []
        end = 0
        for match in _EXPRESSION.finditer(text):
            parts.append(text[end : match.start()])
            end = match.end()
            if match.group() == "$${":
                parts.append("${")
                continue
            value = self._expression(match.group(1), path)
            if value is None:
                if match.group() == text:
                    return _ABSENT
                raise self._error(
                    path,
                    f"the variable of {match.group()} is not set",
                    "set it, or give a default: ${env:NAME:-default}",
                )
            parts.append(value)
        parts.append(text[end:])
        result = "".join(parts)
        if is_secret_path(path):
            secrets.add(result)
        return result

    def _expression(self, body: str | None, path: KeyPath) -> str | None:
        if body is None:
            raise self._error(path, "a ${ without its }", _FORMS)
        kind, _, rest = body.partition(":")
        if kind == "env":
            return self._variable(rest, path)
        if kind == "file" and rest:
            return self._file(rest, path)
        raise self._error(path, f"${{{body}}} is no known expression", _FORMS)

    def _variable(self, rest: str, path: KeyPath) -> str | None:
        name, dash, default = rest.partition(":-")
        if not _NAME.fullmatch(name):
            raise self._error(path, f"${{env:{rest}}} names no variable", _FORMS)
        value = self.environ.get(name)
        if dash and not value:
            return default
        if value is not None and _SECRET_VARIABLE.search(name):
            secrets.add(value)
        return value

    def _file(self, rest: str, path: KeyPath) -> str:
        target = Path(os.path.join(self.folder, os.path.expanduser(rest)))
        try:
            data = read_private(target)
        except StateFileError as error:
            raise self._error(path, f"${{file:{rest}}}: {error.message}", None) from error
        if data is None:
            raise self._error(path, f"${{file:{rest}}}: {target} does not exist", None)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._error(path, f"${{file:{rest}}}: {target} is not UTF-8", None) from error
        text = text.removesuffix("\n").removesuffix("\r")
        if _SECRET_VARIABLE.search(rest):
            secrets.add(text)
        return text

    def _error(self, path: KeyPath, detail: str, hint: str | None) -> InterpolationError:
        line = self.lines.get(path)
        where = self.label if line is None else f"{self.label}, line {line}"
        return InterpolationError(where, ".".join(path), detail, hint=hint)
