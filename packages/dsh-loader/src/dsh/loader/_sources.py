"""One source of settings, read and checked as a layer: a file, a mapping, a `--set`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from dsh.core import json as djson
from dsh.core.json import JsonObject, JsonValue
from dsh.loader._choice import installed_seam_keys
from dsh.loader._interpolate import Interpolator
from dsh.loader._scalars import is_simple, resolve_plain
from dsh.loader._shape import check_shape, normalise_rows
from dsh.loader._yaml import Document, KeyPath, parse_yaml
from dsh.loader.errors import ConfigFileError, ConfigKeyError
from dsh.paths import StateFileError, read_private

_SEGMENT: Final = re.compile(r'"([^"]+)"|([^."=]+)')


class LayerKind(Enum):
    """Where a layer comes from."""

    DEFAULTS = "defaults"
    """What the bundle and the app bring along."""
    USER = "user"
    """The person's own file."""
    PROJECT = "project"
    """The file of the project; read in full once it is trusted."""
    CONFIG = "config"
    """A file named by `--config`."""
    SET = "set"
    """One `--set key=value`."""
    CALLER = "caller"
    """A mapping that a program passes in."""

    @property
    def may_name_files(self) -> bool:
        """Whether its rows may name `./file.py`: only what the person wrote for this machine."""
        return self in {LayerKind.USER, LayerKind.CONFIG, LayerKind.CALLER}


@dataclass(frozen=True, slots=True)
class Layer:
    """One source of settings, checked on its own and ready to be merged."""

    kind: LayerKind
    """Where it comes from."""
    label: str
    """How messages name it: a path, or `--set KEY`."""
    data: JsonObject
    """Its settings after interpolation, rows by id."""
    path: Path | None = None
    """The file, where it is one."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict[KeyPath, int])
    """Line of each path in the file."""
    written: Mapping[KeyPath, str] = field(default_factory=dict[KeyPath, str])
    """Strings with `${...}` as they were written."""
    tighten_only: bool = False
    """Read from a file nobody trusts yet: limits may only get lower."""

    @property
    def folder(self) -> Path:
        """The folder that relative paths in it start from."""
        return Path() if self.path is None else self.path.parent

    def where(self, path: KeyPath) -> str:
        """Name the place of `path` for a message: the label and, where known, the line."""
        while path:
            if path in self.lines:
                return f"{self.label}, line {self.lines[path]}"
            path = path[:-1]
        return self.label


@dataclass(frozen=True, slots=True)
class RawFile:
    """The bytes of a deployment file, read once, so that what was hashed is what is parsed."""

    path: Path
    """The file."""
    data: bytes
    """Its content."""


def read_file(path: Path) -> RawFile | None:
    """Read a deployment file, or return `None` where there is none.

    Raises:
        ConfigFileError: Stage `read`.
    """
    try:
        data = read_private(path)
    except StateFileError as error:
        detail = error.message.removeprefix(f"{path}: ")
        raise ConfigFileError("read", str(path), detail) from error
    return None if data is None else RawFile(path, data)


def parse_file(raw: RawFile) -> Document:
    """Parse a deployment file into a mapping; an empty file is an empty mapping.

    `.json` files are read as JSON, everything else as YAML.

    Raises:
        ConfigFileError: Stage `parse` or `validate`.
    """
    label = str(raw.path)
    try:
        text = raw.data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigFileError("parse", label, f"not UTF-8 (byte {error.start})") from None
    if raw.path.suffix == ".json":
        document = Document(_parse_json(text, label), {})
    else:
        document = parse_yaml(text, where=label)
    if document.value is None:
        return Document({}, document.lines)
    if not isinstance(document.value, dict):
        raise ConfigFileError(
            "validate", label, "the top level must be a mapping", hint="start with `version: 1`"
        )
    return document


def file_layer(raw: RawFile, kind: LayerKind, *, environ: Mapping[str, str] | None = None) -> Layer:
    """Make a layer of a file, fully interpolated and checked.

    Args:
        raw: The file.
        kind: Where it comes from.
        environ: Variables for interpolation; the process's if not given.

    Raises:
        ConfigFileError: The file cannot be parsed.
        ConfigKeyError: A key is unknown or of the wrong kind.
        InterpolationError: An expression cannot be resolved.
    """
    document = parse_file(raw)
    value = document.value
    assert isinstance(value, dict)  # parse_file returns nothing else
    return _make_layer(
        kind, str(raw.path), value, lines=document.lines, path=raw.path, environ=environ
    )


def mapping_layer(
    data: Mapping[str, object],
    kind: LayerKind,
    label: str,
    *,
    path: Path | None = None,
) -> Layer:
    """Make a layer of a mapping, for example an app's defaults or a caller's argument.

    Raises:
        NotJsonError: It holds something that is no JSON.
        ConfigKeyError: A key is unknown or of the wrong kind.
        InterpolationError: An expression cannot be resolved.
    """
    value = djson.check(data, where=label)
    assert isinstance(value, dict)  # a mapping stays one
    return _make_layer(kind, label, value, path=path)


def set_layer(assignment: str) -> Layer:
    """Make a layer of one `KEY.PATH=VALUE`; the value is YAML.

    Rows are addressed by id: `plugins.llm-deepseek.config.base_url=http://localhost`. A segment
    with a dot in it is quoted: `plugins."a.b".disabled=true`.

    Raises:
        ConfigKeyError: The assignment is malformed, or its key is unknown.
        ConfigFileError: The value is no YAML.
        InterpolationError: An expression in the value cannot be resolved.
    """
    path, text = _split_assignment(assignment)
    label = f"--set {'.'.join(path)}"
    try:
        value = resolve_plain(text) if is_simple(text) else parse_yaml(text, where=label).value
    except ValueError as error:
        raise ConfigKeyError("--set", ".".join(path), str(error)) from None
    data: JsonObject = {path[-1]: value}
    for key in reversed(path[:-1]):
        data = {key: data}
    return _make_layer(LayerKind.SET, label, data)


def _split_assignment(assignment: str) -> tuple[KeyPath, str]:
    form = "write --set KEY.PATH=VALUE, for example --set bash.timeout_ms=5000"
    path: list[str] = []
    position = 0
    while match := _SEGMENT.match(assignment, position):
        path.append(match.group(1) or match.group(2))
        position = match.end()
        following = assignment[position : position + 1]
        if following == "=":
            return tuple(path), assignment[position + 1 :]
        if following != ".":
            break
        position += 1
    # the text may hold a secret, so only its head is repeated
    raise ConfigKeyError(
        "--set", repr(assignment.partition("=")[0][:60]), "no KEY=VALUE", hint=form
    )


def _make_layer(
    kind: LayerKind,
    label: str,
    data: JsonObject,
    *,
    lines: Mapping[KeyPath, int] | None = None,
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Layer:
    rows, moved = normalise_rows(data, lines or {}, label, allow_mapping=kind is LayerKind.SET)
    folder = Path() if path is None else path.parent
    interpolator = Interpolator(label, moved, os.environ if environ is None else environ, folder)
    resolved = interpolator.resolve(rows)
    layer = Layer(kind, label, resolved, path, moved, interpolator.written)
    check_shape(resolved, layer.where, seam_keys=installed_seam_keys)
    return layer


def _parse_json(text: str, label: str) -> JsonValue:
    import json

    def pairs(items: list[tuple[str, JsonValue]]) -> JsonObject:
        result: JsonObject = {}
        for key, value in items:
            if key in result:
                raise ValueError(f"key {key!r} occurs twice")
            result[key] = value
        return result

    try:
        return djson.check(json.loads(text, object_pairs_hook=pairs), where=label)
    except (ValueError, RecursionError) as error:
        raise ConfigFileError("parse", label, f"not readable as JSON: {error}") from None
