"""A plugin's project: rendered out of templates, and written whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Final

from dsh.cli._new._names import Author, class_of, module_of
from dsh.cli.errors import CliError, UsageError
from dsh.core import json as djson
from dsh.core import version_of

DEFAULT_SEAM: Final = "bash"
"""What a provider provides where nothing else is said."""

_SUFFIX: Final = ".tmpl"
_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_WHAT: Final = {
    "tool": "a tool for the model",
    "gate": "a gate in front of tools",
    "provider": "a provider of the service {seam}",
    "ui": "a transcript of what agents do",
}
_DEPENDENCIES: Final[Mapping[str, tuple[str, ...]]] = {
    "tool": ("dsh-core", "dsh-tools"),
    "gate": ("dsh-core", "dsh-tools"),
    "provider/bash": ("dsh-bash", "dsh-bash-local", "dsh-core"),
    "ui": ("dsh-agent", "dsh-core", "dsh-llm", "dsh-session"),
}
_PYDANTIC: Final = "pydantic>=2.11,<3"


@dataclass(frozen=True, slots=True)
class Project:
    """What a project is made from."""

    name: str
    """Name of the plugin and of its distribution."""
    kind: str
    """What it is for: `tool`, `gate`, `provider` or `ui`."""
    seam: str | None = None
    """The service key a provider provides."""
    description: str | None = None
    """One line for the manifest and the README."""
    author: Author | None = None

    @property
    def what(self) -> str:
        """What it is, in a few words."""
        return _WHAT[self.kind].format(seam=self.seam)

    @property
    def templates(self) -> str:
        """The folder of the templates that are this kind's alone."""
        return self.kind if self.seam is None else f"{self.kind}/{self.seam}"


def seams() -> tuple[str, ...]:
    """Return the service keys there is a template of a provider for."""
    folder = _templates() / "provider"
    return tuple(sorted(item.name for item in folder.iterdir() if item.is_dir()))


def render(project: Project) -> dict[str, str]:
    """Return the files of a project by their path in it."""
    shared, own = _read("project"), _read(project.templates)
    module = module_of(project.name)
    values = _values(project, module)
    for part in ("about", "configure"):
        values[part] = _filled(own.pop(f"{part}.md"), values)
    package = f"src/{module}"
    paths = {
        "gitignore": ".gitignore",
        "__init__.py": f"{package}/__init__.py",
        "test_plugin.py": f"tests/test_{module}.py",
    }
    found = {f"{package}/py.typed": ""}
    for name, text in {**shared, **own}.items():
        usual = f"{package}/{name}" if name.startswith("_") else name
        found[paths.get(name, usual)] = _filled(text, values) + "\n"
    return dict(sorted(found.items()))


def write(project: Project, folder: Path) -> list[str]:
    """Write a project, and return the paths of its files.

    It is written beside its folder and moved there when it is whole, so whatever stops it leaves
    no part of a project behind.

    Args:
        project: What to write.
        folder: Where; it must not exist yet, or be empty.

    Raises:
        UsageError: The folder is in use.
        CliError: It could not be written.
    """
    contents = render(project)
    try:
        _check_free(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            # the scratch folder is private, the project has the modes of any other
            draft = Path(scratch) / folder.name
            for name, text in contents.items():
                path = draft / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            os.rename(draft, folder)
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            raise _in_use(folder) from error
        raise CliError(f"{folder} cannot be written: {error.strerror}") from error
    return list(contents)


def _check_free(folder: Path) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir() or any(folder.iterdir()):
        raise _in_use(folder)


def _in_use(folder: Path) -> UsageError:
    hint = "choose another name, or another folder with --into"
    return UsageError(f"{folder} exists already; nothing was written", hint=hint)


def _values(project: Project, module: str) -> dict[str, str]:
    compatible = _compatible(version_of("dsh-core") or "0.1.0")
    needs = [f"{name}{compatible}" for name in _DEPENDENCIES[project.templates]]
    if project.seam is None:
        needs.append(_PYDANTIC)
    cls = class_of(project.name, _taken(project.templates))
    description = project.description or _sentence(project.what)
    values = {
        "name": project.name,
        "short_name": project.name,
        "module": module,
        "cls": cls,
        "description": description,
        "toml_description": _quoted(description),
        "authors": _authors(project.author),
        "dependencies": "".join(f'    "{need}",\n' for need in needs),
        "compatible": compatible,
        "seam_entry_point": "",
        "remove": f"Take `{project.name}` out of `~/.dsh/dsh.yaml`, then:",
    }
    if project.seam is not None:
        key = project.seam
        values["short_name"] = project.name.removeprefix(f"{key.replace('_', '-')}-")
        values["seam_entry_point"] = (
            f'\n[project.entry-points."dsh.seam.{key}"]\n{project.name} = "{module}:{cls}"\n'
        )
        values["remove"] = (
            f"`dsh` falls back to its default provider of `{key}`. If `~/.dsh/dsh.yaml` names "
            f"`{project.name}`, take that out first."
        )
    return values


def _compatible(version: str) -> str:
    """Return the range of versions that go with one: before 1.0 a minor one may break."""
    major, minor = (int(part) for part in version.split(".")[:2])
    if major == 0:
        return f">={version},<0.{minor + 1}"
    return f">={version},<{major + 1}"


def _authors(author: Author | None) -> str:
    if author is None:
        return ""
    email = "" if author.email is None else f", email = {_quoted(author.email)}"
    return f"authors = [{{ name = {_quoted(author.name)}{email} }}]\n"


def _quoted(text: str) -> str:
    # a JSON string of printable characters is a TOML string too
    return djson.dumps(text).decode()


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


@cache
def _taken(folder: str) -> frozenset[str]:
    """Return every word of a kind's code, so that no class is called like one of them."""
    code = (text for name, text in _read(folder).items() if name.endswith(".py"))
    return frozenset(word for text in code for word in _WORD.findall(text))


def _read(folder: str) -> dict[str, str]:
    """Return the templates of a folder by name."""
    place = _templates().joinpath(folder)
    return {
        item.name.removesuffix(_SUFFIX): item.read_text(encoding="utf-8")
        for item in place.iterdir()
        if item.name.endswith(_SUFFIX)
    }


def _templates() -> Traversable:
    return files("dsh.cli") / "_new" / "templates"


def _filled(template: str, values: Mapping[str, str]) -> str:
    return Template(template).substitute(values).rstrip("\n")
