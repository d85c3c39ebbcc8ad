"""What a plugin may be called, and what may stand in its manifest."""

from __future__ import annotations

import builtins
import keyword
import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Final

from dsh.cli.errors import UsageError
from dsh.core import entry_points, version_of
from dsh.loader import installed_seam_keys

_KEBAB: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME: Final = 40
_LONGEST_LINE: Final = 200
_OURS: Final = "dsh"
_EXAMPLE: Final = "acme-"
_FOLDERS: Final = frozenset({"src", "tests"})
"""Folders of a project, which a module of the same name would be taken for."""
_AUTHOR: Final = re.compile(r"(?P<name>[^<>]+?)\s*(<(?P<email>[^<>@\s]+@[^<>@\s]+)>)?")


@dataclass(frozen=True, slots=True)
class Author:
    """Who is named in the manifest."""

    name: str
    email: str | None


def module_of(name: str) -> str:
    """Return the module of a plugin's project."""
    return name.replace("-", "_")


def class_of(name: str, taken: frozenset[str]) -> str:
    """Return the class of a plugin, never one of the names `taken`, a keyword or a builtin."""
    plain = "".join(part[:1].upper() + part[1:] for part in name.split("-"))
    if plain in taken or keyword.iskeyword(plain) or hasattr(builtins, plain):
        return f"{plain}Plugin"
    return plain


def check_name(name: str, seam: str | None) -> str:
    """Return a plugin's name if a project, a module and a plugin can have it.

    Args:
        name: What the person calls it.
        seam: The service key it provides, if it does.

    Raises:
        UsageError: It cannot; the message says why.
    """
    if not _KEBAB.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise UsageError(f"{name!r} is no name for a plugin: {_advice(name)}")
    reason = _reserved(name, seam) or _installed(name)
    if reason is not None:
        hint = "choose another name"
        if not name.startswith(_EXAMPLE):
            hint += f", {_EXAMPLE}{name} for example"
        raise UsageError(f"{name!r} cannot be the name of a plugin: {reason}", hint=hint)
    return name


def _advice(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower())
    better = "-".join(words)
    if (
        name.isascii()
        and better != name
        and _KEBAB.fullmatch(better)
        and len(better) <= _LONGEST_NAME
    ):
        return f"write it {better!r}"
    return (
        "use words of small letters and digits, joined by hyphens, beginning with a letter, "
        f"{_LONGEST_NAME} characters at most"
    )


def _reserved(name: str, seam: str | None) -> str | None:
    module = module_of(name)
    if name == _OURS or name.startswith(f"{_OURS}-"):
        return "names that begin with dsh are those of dsh's own wheels"
    if keyword.iskeyword(module) or keyword.issoftkeyword(module):
        return f"{module} is a keyword of Python"
    if module in sys.stdlib_module_names:
        return f"{module} is a module of Python's standard library"
    if module in _FOLDERS:
        return f"{module} is a folder of the project"
    if module in {seam, *installed_seam_keys()}:
        return f"{module} is the key of a service"
    return None


def _installed(name: str) -> str | None:
    for point in entry_points("dsh.plugins"):
        if point.name == name:
            return f"{point.dist_name} {point.dist_version} has a plugin of that name"
    version = version_of(name)
    if version is not None:
        return f"{name} {version} is installed"
    spec = find_spec(module_of(name))
    # a folder that happens to lie on the path has no origin, and is no obstacle
    if spec is not None and spec.origin is not None:
        return f"the module {module_of(name)} is installed"
    return None


def check_line(option: str, text: str | None) -> str | None:
    """Return a text that can stand on one line of a manifest, None for none.

    Raises:
        UsageError: It is blank, too long, or has characters that cannot be shown.
    """
    if text is None:
        return None
    line = text.strip()
    if not line:
        raise UsageError(f"{option}: it is blank")
    if not line.isprintable() or len(line) > _LONGEST_LINE:
        raise UsageError(f"{option}: use one line of at most {_LONGEST_LINE} characters")
    return line


def parse_author(text: str | None) -> Author | None:
    """Return the author written `Name` or `Name <address>`, None for none.

    Raises:
        UsageError: It is written in another way.
    """
    line = check_line("--author", text)
    if line is None:
        return None
    found = _AUTHOR.fullmatch(line)
    if found is None:
        raise UsageError(f"--author: {line!r} is neither NAME nor 'NAME <ADDRESS>'")
    return Author(found["name"], found["email"])
