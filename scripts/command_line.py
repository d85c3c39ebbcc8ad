"""What the command lines of the gates share."""

from __future__ import annotations

import argparse
from pathlib import Path


def gate_parser(about: str | None, root: Path) -> argparse.ArgumentParser:
    """Return a parser that takes the workspace to look at.

    Args:
        about: Docstring of the script.
        root: The workspace where none is given.
    """
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "root", nargs="?", type=workspace, default=root, metavar="ROOT", help="the workspace"
    )
    return parser


def workspace(text: str) -> Path:
    """Return the folder that an argument names, to be used as `type` of an argument.

    Raises:
        ArgumentTypeError: There is no wheel in it, so a gate would look at nothing and pass.
    """
    root = Path(text).resolve()
    if not root.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no folder")
    if not any(any(root.glob(f"{place}/*/src/dsh")) for place in ("packages", "apps")):
        raise argparse.ArgumentTypeError(
            f"{text} is no workspace: neither packages/*/src/dsh nor apps/*/src/dsh is there"
        )
    return root
