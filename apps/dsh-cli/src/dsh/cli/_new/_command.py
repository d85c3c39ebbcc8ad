"""`dsh new plugin`: write the project, and say what to do with it."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dsh.cli._exit_codes import OK
from dsh.cli._new._names import check_line, check_name, parse_author
from dsh.cli._new._project import DEFAULT_SEAM, Project, seams, write
from dsh.cli._out import stdout
from dsh.cli.errors import UsageError
from dsh.core import version_of
from dsh.loader import FILE_NAME
from dsh.paths import user_folder

_TESTKIT: Final = "dsh-testkit"


def command(args: argparse.Namespace) -> int:
    """Write the project of a new plugin.

    Raises:
        UsageError: No project can be made of what was asked for, or its folder is in use.
    """
    if args.what is None:
        raise UsageError("say what to make", hint="dsh new plugin NAME --kind tool")
    seam = _seam(args.kind, args.seam)
    project = Project(
        name=check_name(args.name, seam),
        kind=args.kind,
        seam=seam,
        description=check_line("--description", args.description),
        author=parse_author(args.author),
    )
    folder = _parent(args.into) / project.name
    files = write(project, folder)
    out = stdout()
    shown = _shown(folder)
    out.line(f"{project.name}, {project.what}, was written to {shown}:")
    for file in files:
        out.line(f"  {file}")
    out.line("next:")
    for step in _steps(shown):
        out.line(f"  {step}")
    out.line(_how_to_use(project))
    return OK


def _seam(kind: str, named: str | None) -> str | None:
    """Return the service key a plugin provides, None if it provides none."""
    if kind != "provider":
        if named is not None:
            raise UsageError(f"--seam is for providers, not for a {kind}")
        return None
    key = DEFAULT_SEAM if named is None else named
    if key not in seams():
        raise UsageError(
            f"there is no template for a provider of {key!r}",
            hint=f"--seam takes: {', '.join(seams())}; for others follow docs/cookbook/README.md",
        )
    return key


def _parent(named: str | None) -> Path:
    try:
        folder = Path(os.path.abspath(named or "."))
    except OSError as error:
        raise UsageError(
            "the current folder does not exist any more", hint="change to another, or use --into"
        ) from error
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--into: {folder} is no folder")
    return folder


def _shown(folder: Path) -> str:
    """Return the folder as the person would type it from where they are."""
    try:
        relative = os.path.relpath(folder)
    except OSError:  # the current folder is gone
        return str(folder)
    # a leading dash would be an option of whatever it is pasted behind
    return str(folder) if relative.startswith(("..", "-")) else relative


def _steps(folder: str) -> Sequence[str]:
    python = _python()
    install = f"{_installer(python)} -e"
    steps = [f"cd {shlex.quote(folder)}"]
    if version_of(_TESTKIT) is None and (kit := kit_beside(Path(__file__))) is not None:
        steps.append(f"{install} {shlex.quote(f'{kit}[trio]')}")
    return (*steps, f"{install} '.[test]'", f"{python} -m pytest")


def kit_beside(module: Path) -> Path | None:
    """Return the test kit of the checkout that a module of ours lies in, None without one.

    Where `dsh` runs from a checkout the wheels need not be on any index, so a project that asks
    for the test kit by name alone could not be installed.
    """
    for folder in module.resolve().parents:
        kit = folder / "packages" / _TESTKIT
        if (kit / "pyproject.toml").is_file():
            return kit
    return None


def _python() -> str:
    """Return how to call the interpreter that `dsh` runs on from a shell."""
    found = shutil.which("python")
    # two environments may link to one interpreter, so it is the folder that tells them apart
    if found is not None and os.path.dirname(found) == os.path.dirname(sys.executable):
        return "python"
    return shlex.quote(sys.executable)


def _installer(python: str) -> str:
    if find_spec("pip") is not None:
        return f"{python} -m pip install"
    beside = Path(sys.executable).with_name("uv")
    uv = "uv" if shutil.which("uv") else shlex.quote(str(beside)) if beside.exists() else None
    if uv is None:
        return f"{python} -m pip install"
    return f"{uv} pip install --python {python}"


def _how_to_use(project: Project) -> str:
    if project.seam is not None:
        return f"once installed it provides {project.seam!r}; dsh doctor says why"
    folder = user_folder()
    file = f"your {FILE_NAME}" if folder is None else folder / FILE_NAME
    return f"once installed, name it in {file}:\n  version: 1\n  plugins: [{project.name}]"
