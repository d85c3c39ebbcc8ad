"""`dsh completion`: a script that completes the command in a shell."""

from __future__ import annotations

import argparse

from dsh.cli._exit_codes import OK
from dsh.cli._main import full_parser
from dsh.cli._out import stdout


def command(args: argparse.Namespace) -> int:
    """Print the script for one shell."""
    # the library is for this command alone
    import shtab

    stdout().line(shtab.complete(full_parser(), args.shell).rstrip("\n"))
    return OK
