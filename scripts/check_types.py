"""Gate: the public API also checks under mypy, as many users run it.

`mypy -p dsh` would see only the first portion of the namespace, so every portion is named.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def portions(root: Path) -> list[str]:
    """Return the dotted name of every portion of the namespace."""
    found = [*root.glob("packages/*/src/dsh/*"), *root.glob("apps/*/src/dsh/*")]
    return sorted(f"dsh.{path.name}" for path in found if (path / "__init__.py").is_file())


def main() -> int:
    """Run mypy over every portion and over the typing tests."""
    names = [word for name in portions(ROOT) for word in ("-p", name)]
    examples = sorted(str(path) for path in (ROOT / "tests" / "typing").glob("*.py"))
    code = subprocess.run(["mypy", *names], cwd=ROOT, check=False).returncode
    return code or subprocess.run(["mypy", *examples], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
