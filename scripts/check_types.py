"""Gate: the public API also checks under mypy, as many users run it.

`mypy -p dsh` would see only the first portion of the namespace, so every portion is named.

Usage: `python scripts/check_types.py [ROOT]`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from command_line import gate_parser

ROOT = Path(__file__).resolve().parent.parent


def portions(root: Path) -> list[Path]:
    """Return the folder of every portion of the namespace."""
    found = [*root.glob("packages/*/src/dsh/*"), *root.glob("apps/*/src/dsh/*")]
    return sorted(path for path in found if (path / "__init__.py").is_file())


def mypy(root: Path, *arguments: str) -> int:
    """Run mypy over the workspace at `root`, whatever of it is installed."""
    sources = [str(path.parents[1]) for path in portions(root)]
    environment = os.environ | {"MYPYPATH": os.pathsep.join(sources)}
    command = [sys.executable, "-m", "mypy", *arguments]
    return subprocess.run(command, cwd=root, env=environment, check=False).returncode


def main(arguments: list[str] | None = None) -> int:
    """Run mypy over every portion and over the typing tests."""
    root: Path = gate_parser(__doc__, ROOT).parse_args(arguments).root
    names = [word for path in portions(root) for word in ("-p", f"dsh.{path.name}")]
    examples = sorted(str(path) for path in root.glob("tests/typing/*.py"))
    return mypy(root, *names) or (mypy(root, *examples) if examples else 0)


if __name__ == "__main__":
    sys.exit(main())
