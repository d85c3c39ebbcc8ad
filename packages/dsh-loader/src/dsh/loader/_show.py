"""A deployment as one YAML document with the origin of every value and no secret in it."""

from __future__ import annotations

import re
from typing import Final

from dsh.core import json as djson
from dsh.core import secrets
from dsh.core.json import JsonObject, JsonValue
from dsh.loader._bundles import explain_bundle
from dsh.loader._deployment import Deployment
from dsh.loader._interpolate import is_secret_path
from dsh.loader._scalars import resolve_plain
from dsh.loader._yaml import KeyPath
from dsh.loader.errors import SeamError

_PLAIN: Final = re.compile(r"[A-Za-z_./~][A-Za-z0-9_./+-]*")
_MASK: Final = "********"


def render_deployment(deployment: Deployment) -> str:
    """Return the merged deployment as YAML, a comment after each value saying where it is from.

    Expressions are shown as they are written, never what they stand for; values of keys that
    hold secrets are masked. A bundle that no layer names stands in a comment, with the reason.
    """
    lines: list[str] = []
    _mapping(deployment, deployment.data, (), "", lines)
    lines = lines or ["{}"]
    if "bundle" not in deployment.data:
        lines.insert(1 if "version" in deployment.data else 0, f"# bundle: {_bundle(deployment)}")
    return "\n".join(lines) + "\n"


def _bundle(deployment: Deployment) -> str:
    try:
        choice = explain_bundle(deployment)
    except SeamError as error:
        return f"undecided: {_one_line(error.message)}"
    assert choice is not None  # no layer says that there is none
    return _one_line(f"{choice.provider.name}, {choice.detail}")


def _mapping(
    deployment: Deployment, data: JsonObject, path: KeyPath, indent: str, lines: list[str]
) -> None:
    for key in sorted(data, key=lambda name: (path == () and name != "version", name)):
        value = data[key]
        here = (*path, key)
        if here == ("plugins",) and isinstance(value, dict):
            _rows(deployment, value, lines)
        elif isinstance(value, dict) and value:
            lines.append(f"{indent}{_scalar(key)}:")
            _mapping(deployment, value, here, indent + "  ", lines)
        else:
            text = _leaf(deployment, value, here)
            lines.append(f"{indent}{_scalar(key)}: {text}{_comment(deployment, here)}")


def _rows(deployment: Deployment, rows: JsonObject, lines: list[str]) -> None:
    lines.append("plugins:")
    for row in deployment.rows:
        settings = rows[row.id]
        assert isinstance(settings, dict)  # rows are normalised to mappings
        shown = {"use": row.use, **{k: v for k, v in settings.items() if k != "use"}}
        path: KeyPath = ("plugins", row.id)
        lines.append(f"  - id: {_scalar(row.id)}")
        _mapping(deployment, shown, path, "    ", lines)


def _leaf(deployment: Deployment, value: JsonValue, path: KeyPath) -> str:
    origin = deployment.origin(path)
    if origin is not None and origin.path == path and origin.written is not None:
        return djson.dumps(origin.written).decode()
    if is_secret_path(path) and value is not None:
        return _MASK_TEXT
    if isinstance(value, str):
        return _scalar(secrets.redact(value))
    text = djson.dumps(value).decode()
    return secrets.redact(text)


def _comment(deployment: Deployment, path: KeyPath) -> str:
    origin = deployment.origin(path)
    return "" if origin is None else f"  # {_one_line(str(origin))}"


def _scalar(text: str) -> str:
    """Return a string as a YAML scalar that every reader takes for this very string."""
    if _PLAIN.fullmatch(text) and isinstance(resolve_plain(text), str) and text not in _OLD_WORDS:
        return text
    return djson.dumps(text).decode()


def _one_line(text: str) -> str:
    return "".join(ch if ch.isprintable() else "?" for ch in text)


_MASK_TEXT: Final = djson.dumps(_MASK).decode()
_OLD_WORDS: Final = frozenset(
    {"yes", "no", "on", "off", "y", "n", "Yes", "No", "On", "Off", "YES", "NO", "ON", "OFF"}
)
