"""`dsh login`: keep an API key."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Final, TextIO, cast

from dsh.cli._defaults import APP
from dsh.cli._exit_codes import OK
from dsh.cli._keys import key_file, remove_key, store_key
from dsh.cli._out import stderr, stdout
from dsh.cli._settings import default_settings, login_layers, working_folder
from dsh.cli.errors import UsageError
from dsh.core import DshError, entry_points
from dsh.loader import read_deployment

_MAX_KEY: Final = 4096


def command(args: argparse.Namespace) -> int:
    """Store or remove a key."""
    provider = str(args.provider)
    key_file(provider)  # refuses a bad name before anything is asked
    out = stdout()
    if args.remove:
        removed = remove_key(provider)
        out.line(f"the key of {provider} is removed" if removed else f"no key of {provider} kept")
        return OK
    _check_known(provider)
    path = store_key(provider, _checked(_read_key(provider)))
    out.line(f"the key of {provider} is kept in {path}")
    if provider != "deepseek":
        stderr().line(f"name it in the row of that provider: config: {{key_file: {path}}}")
    elif os.environ.get("DEEPSEEK_API_KEY"):
        stderr().line("DEEPSEEK_API_KEY is set too, and wins")
    return OK


def _check_known(provider: str) -> None:
    """Refuse a provider that neither an installed adapter nor the settings know.

    Raises:
        UsageError: Names the known ones.
    """
    if provider == "deepseek":
        return
    known = {"deepseek"}
    for point in entry_points("dsh.plugins"):
        if point.name.startswith("llm-") and point.name != "llm-replay":
            known.add(point.name.removeprefix("llm-"))
    try:
        folder = working_folder(None)
        settings = read_deployment(
            defaults=default_settings(), base=login_layers(), app=APP, project=folder
        )
    except DshError:
        return  # settings that cannot be read say nothing about providers
    known.update(str(row.config["provider"]) for row in settings.rows if "provider" in row.config)
    if provider not in known:
        raise UsageError(
            f"no provider is called {provider!r} here (known: {', '.join(sorted(known))}); "
            "nothing was changed",
            hint=f"a row of its adapter makes it known: config: {{provider: {provider}}}",
        )


def _read_key(provider: str) -> str:
    stdin = cast("TextIO | None", sys.stdin)
    if stdin is None:
        raise UsageError("there is no standard input to read the key from")
    if stdin.isatty():
        # only a person at a terminal needs it
        from getpass import getpass

        try:
            return getpass(f"API key of {provider} (not shown): ", stream=sys.stderr)
        except EOFError as error:
            raise UsageError("no key given; nothing was changed") from error
    return stdin.buffer.read(_MAX_KEY + 1).decode("utf-8", "replace")


def _checked(text: str) -> str:
    key = text.strip()
    if not key:
        raise UsageError("the key is empty; nothing was changed")
    if len(key) > _MAX_KEY or not all("\x21" <= char <= "\x7e" for char in key):
        raise UsageError(
            "that is no key: keys are printable ASCII without spaces; nothing was changed",
            hint="copy it again, without quotes and line breaks",
        )
    return key
