"""Gate: the public API is documented, and its names keep the rules.

What the wheels list as public is read without importing it. `public_api/docs.py` has the rules for
docstrings, `public_api/names.py` those for names.

Usage: `python scripts/check_docstrings.py [ROOT]`. Prints one line per finding; exits 1 if any.
"""

from __future__ import annotations

import sys
from pathlib import Path

from command_line import gate_parser
from public_api import docs, names
from public_api.faces import Api

ROOT = Path(__file__).resolve().parent.parent


def check(root: Path) -> list[str]:
    """Return every finding in the public API of the workspace at `root`."""
    api = Api.load(root)
    found = {*docs.check(api), *names.check(api)}
    ordered = sorted(found, key=lambda item: (str(item.path), item.line, item.text))
    return [item.show(root) for item in ordered]


def main(arguments: list[str] | None = None) -> int:
    """Run the gate on the workspace given, or on this one."""
    root: Path = gate_parser(__doc__, ROOT).parse_args(arguments).root
    findings = check(root)
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.stdout.write(f"docstrings: {len(findings)} findings\n")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
