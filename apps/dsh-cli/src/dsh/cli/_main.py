"""From the command line to an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dsh.cli._exit_codes import INTERRUPTED, OK
from dsh.cli._out import mute_stdout, stderr, stdout
from dsh.cli._starting import Starting
from dsh.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from dsh.cli._arguments import Parser
    from dsh.cli._parser import Command


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `dsh` command and return its exit code.

    Args:
        argv: The arguments after the command's name; those of the process if not given.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        mute_stdout()
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - every failure becomes one message and a code
        # most runs end well and never need it
        from dsh.cli._failures import tell

        return tell(error, as_json="--json" in arguments)


def _run(arguments: list[str]) -> int:
    if not arguments:
        return _welcome()
    with Starting():
        parser = _parser(arguments)
    try:
        args, unknown = parser.parse_known_args(arguments)
    except SystemExit as end:  # --help has been printed
        return end.code if isinstance(end.code, int) else OK
    if unknown:
        raise UsageError(
            f"unrecognized arguments: {' '.join(unknown)}",
            hint=f"see {' '.join(_words(args))} --help",
        )
    if args.version:
        return _version()
    command: Command | None = getattr(args, "run", None)
    if command is None:
        raise UsageError("no command given", hint="see dsh --help")
    if args.command in _built_in():
        return command(args)
    with Starting():
        from dsh.cli._installed import run_installed
    return run_installed(command, args)


def _words(args: argparse.Namespace) -> list[str]:
    """Return the words that name the command which the options are of."""
    inner = (getattr(args, name, None) for name in ("command", "action", "what"))
    return ["dsh", *(word for word in inner if isinstance(word, str))]


def _built_in() -> frozenset[str]:
    from dsh.cli._parser import BUILT_IN

    return BUILT_IN


def _parser(arguments: list[str]) -> Parser:
    from dsh.cli._parser import BUILT_IN, build_parser

    known = next((item for item in arguments if not item.startswith("-")), "") in BUILT_IN
    return build_parser(_lazily, () if known else _installed_commands())


def full_parser() -> Parser:
    """Return the parser with the commands of installed wheels in it."""
    from dsh.cli._parser import build_parser

    return build_parser(_lazily, _installed_commands())


def _lazily(name: str) -> Command:
    """Return a function that imports a built-in command when it is called."""

    def command(args: argparse.Namespace) -> int:
        from importlib import import_module

        with Starting():
            function: Command = import_module(f"dsh.cli._{name}").command
        return function(args)

    return command


def _installed_commands() -> list[Any]:
    """Return the functions with which installed wheels add commands."""
    from dsh.core import PluginLoadError, entry_points

    found: list[Any] = []
    for point in entry_points("dsh.commands"):
        try:
            found.append(point.load())
        except PluginLoadError as error:
            stderr().line(f"dsh: the command {point.name!r} is not available: {error}")
    return found


def _welcome() -> int:
    stdout().line(full_parser().format_help().rstrip())
    return OK


def _version() -> int:
    from dsh.core import version_of

    stdout().line(f"dsh {version_of('dsh-cli') or 'unknown'}")
    return OK
