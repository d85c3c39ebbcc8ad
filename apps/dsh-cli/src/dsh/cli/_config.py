"""`dsh config`: the settings in effect and who said each of them, or what can be said at all."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from dsh.cli._defaults import APP
from dsh.cli._exit_codes import OK
from dsh.cli._out import stderr, stdout
from dsh.cli._settings import (
    DEFAULTS_LABEL,
    default_settings,
    login_layers,
    read_settings,
    working_folder,
)
from dsh.cli.errors import UsageError
from dsh.loader import read_deployment, render_deployment


def command(args: argparse.Namespace) -> int:
    """Print the merged settings, or the schema of the file they come from."""
    if args.action is None:
        raise UsageError("no action given", hint="for example: dsh config show")
    return _schema() if args.action == "schema" else _show(args)


def _show(args: argparse.Namespace) -> int:
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


def _schema() -> int:
    # imports every plugin, which no other command may
    import json

    from dsh.loader.schema import deployment_schema

    err = stderr()

    def report(message: str) -> None:
        err.line(f"dsh: left out: {message}")

    with redirect_stdout(sys.stderr):  # what a plugin prints while it is imported is no schema
        schema = deployment_schema(app=APP, report=report)
    stdout().line(json.dumps(schema, indent=2, ensure_ascii=False))
    return OK
