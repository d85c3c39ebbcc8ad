"""`dsh config show`: the settings in effect, and who said each of them."""

from __future__ import annotations

import argparse

from dsh.cli._exits import OK, UsageError
from dsh.cli._out import stderr, stdout
from dsh.cli._settings import (
    DEFAULTS_LABEL,
    default_settings,
    login_layers,
    read_settings,
    working_folder,
)
from dsh.loader import read_deployment, render_deployment


def command(args: argparse.Namespace) -> int:
    """Print the merged settings."""
    if args.action is None:
        raise UsageError("no action given", hint="for example: dsh config show")
    if args.defaults:
        if args.config is not None or args.sets:
            raise UsageError("--defaults takes neither --config nor --set")
        deployment = read_deployment(
            defaults=default_settings(),
            defaults_label=DEFAULTS_LABEL,
            base=login_layers(),
            user=False,
        )
    else:
        deployment = read_settings(args, working_folder(args.cwd))
    err = stderr()
    for note in deployment.notes:
        err.line(f"dsh: {note}")
    stdout().line(render_deployment(deployment).rstrip("\n"))
    return OK
