"""Where the blocks of a page run: a folder, its variables and the programs on its path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

_PRIVATE = re.compile(r"^(DSH_|DEEPSEEK_|PYTHON|VIRTUAL_ENV|CONDA_|UV$|UV_)|^PWD$|^OLDPWD$")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_INDEX = {"UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS"}
_TOOLS = ["pytest>=8.4", "trio>=0.30", "hatchling>=1.27,<2", "editables"]
"""What an own environment holds beside the wheels: a test runner, and what builds a project."""


class EnvironmentFailure(RuntimeError):
    """An environment could not be made; the text is what uv said."""


@dataclass(frozen=True)
class Environment:
    """What the blocks of one page see."""

    folder: Path
    """Their working folder and home."""
    python: Path
    variables: dict[str, str]


class Environments:
    """Makes the environments of one run, and the wheels some of them need."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root = root
        self._folder = folder
        self._lock = Lock()
        self._wheels: list[Path] | None = None

    def shared(self, folder: Path) -> Environment:
        """Return an environment in `folder` that uses the interpreter of this gate."""
        return Environment(folder, Path(sys.executable), self._variables(folder, []))

    def own(self, folder: Path) -> Environment:
        """Return an environment in `folder` with a fresh interpreter that has the wheels.

        Raises:
            EnvironmentFailure: The wheels could not be built or installed.
        """
        with self._lock:
            if self._wheels is None:
                self._wheels = self._build()
        venv = folder.with_name(f"{folder.name}-venv")
        python = venv / "bin" / "python"
        self._uv("venv", "-q", "--python", sys.executable, str(venv))
        self._uv("pip", "install", "-q", "--python", str(python), *map(str, self._wheels), *_TOOLS)
        variables = self._variables(folder, [venv / "bin", self._tools()])
        variables |= {"VIRTUAL_ENV": str(venv), "UV_NO_BUILD_ISOLATION": "1"}
        return Environment(folder, python, variables)

    def _variables(self, folder: Path, path: list[Path]) -> dict[str, str]:
        kept = {
            name: value
            for name, value in os.environ.items()
            if name in _INDEX or not (_PRIVATE.search(name) or _SECRET.search(name))
        }
        here = Path(sys.executable).parent
        inherited = [part for part in os.environ.get("PATH", os.defpath).split(os.pathsep) if part]
        # an own environment must not fall back on what this workspace has installed
        places = [str(part) for part in path] or [str(here)]
        places += [part for part in inherited if Path(part) != here]
        return kept | {
            "PATH": os.pathsep.join(places),
            "HOME": str(folder),
            "DSH_HOME": str(folder / ".dsh"),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "COLUMNS": "100",
            "PYTHONUNBUFFERED": "1",  # output in the order in which a terminal shows it
            "UV_CACHE_DIR": str(self._folder / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }

    def _tools(self) -> Path:
        tools = self._folder / "tools"
        tools.mkdir(exist_ok=True)
        link = tools / "uv"
        if not link.exists():
            link.symlink_to(_uv_program())
        return tools

    def _build(self) -> list[Path]:
        """Build every wheel of the workspace with one hatchling for all."""
        builder = self._folder / "builder"
        python = str(builder / "bin" / "python")
        self._uv("venv", "-q", "--python", sys.executable, str(builder))
        self._uv("pip", "install", "-q", "--python", python, "hatchling>=1.27,<2")
        dist = self._folder / "dist"
        self._uv(
            "build",
            "-q",
            "--all-packages",
            "--wheel",
            "--no-build-isolation",
            "--python",
            python,
            "-o",
            str(dist),
        )
        return sorted(dist.glob("*.whl"))

    def _uv(self, *arguments: str) -> None:
        environment = os.environ | {
            "UV_CACHE_DIR": str(self._folder / "uv-cache"),
            "UV_PYTHON_DOWNLOADS": "never",
        }
        done = subprocess.run(
            [_uv_program(), *arguments],
            cwd=self._root,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise EnvironmentFailure(f"uv {arguments[0]} {arguments[1]}: {done.stderr.strip()}")


def _uv_program() -> str:
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else "uv"
