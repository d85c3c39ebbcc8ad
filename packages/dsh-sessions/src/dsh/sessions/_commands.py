"""The commands that this wheel adds to `dsh`, as argparse sees them."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

Command = Callable[[argparse.Namespace], int]

_EXAMPLES = """\
examples:
  dsh sessions                        those of this folder, newest first
  dsh sessions show 3f2a9c1b          read one; the beginning of an id is enough
  dsh run --resume 3f2a9c1b "go on"   go on with it
  dsh sessions --all | cut -f1 | dsh sessions verify -
"""
_ID_HELP = "the session's id; its beginning is enough"
_IDS_HELP = _ID_HELP + "; `-` reads ids from standard input, one a line"


def register(commands: Any) -> None:
    """Add `dsh sessions`, `dsh replay` and `dsh request`.

    Args:
        commands: The sub-parsers of the command.
    """
    _sessions(commands)
    _replay(commands)
    _request(commands)


def _sessions(commands: Any) -> None:
    parser = commands.add_parser(
        "sessions",
        help="list, read, fork, export and check stored sessions",
        description="Stored sessions. Without an action: list those of this folder.",
        epilog=_EXAMPLES,
    )
    _settings(parser)
    _listing(parser)
    parser.set_defaults(run=_lazily("_list", "list_sessions"))
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")

    _listing(_action(actions, "list", "list sessions, newest first", "_list:list_sessions"))

    show = _action(actions, "show", "read a session", "_show:show")
    _one(show)
    show.add_argument("--json", action="store_true", help="its events as stored, one a line")
    _turn(show, "this turn alone")
    _flag(show, "--full", "do not shorten arguments and results")

    fork = _action(actions, "fork", "store a copy to go on from", "_change:fork")
    _one(fork)
    _turn(fork, "copy up to the end of this turn; default: the last")

    export = _action(actions, "export", "write a session as a document", "_export:export")
    _one(export)
    export.add_argument(
        "--format",
        required=True,
        choices=("md", "json"),
        help="md: a transcript in Markdown; json: the header and the events, one a line",
    )
    export.add_argument(
        "-o", "--output", metavar="FILE", default=None, help="not to standard output"
    )

    archive = _action(actions, "archive", "put sessions away", "_change:archive")
    _several(archive)
    unarchive = _action(actions, "unarchive", "take sessions back", "_change:unarchive")
    _several(unarchive)
    remove = _action(actions, "remove", "delete sessions for good", "_change:remove")
    _several(remove)
    _flag(remove, "--yes", "do not ask")

    verify = _action(actions, "verify", "look at every record of sessions", "_verify:verify")
    _several(verify, needed=False)
    verify.add_argument("--all", action="store_true", help="every session, of every folder")
    _flag(verify, "--repair", "cut a damaged session before the damage; a copy is kept")

    path = _action(actions, "path", "say where a session is kept", "_show:path")
    _one(path)


def _replay(commands: Any) -> None:
    parser = commands.add_parser(
        "replay",
        help="play a stored session again and compare",
        description="Play a stored session again: the model says what it said, tools return what\n"
        "they returned, and whatever dsh makes of it is compared with the log. Nothing\n"
        "is executed and nothing is stored. Exit code 1 if anything differs.",
    )
    _settings(parser)
    _one(parser)
    parser.set_defaults(run=_lazily("_replay_command", "replay"))


def _request(commands: Any) -> None:
    parser = commands.add_parser(
        "request",
        help="print a model request of a stored session, as it was sent",
        description="Print the body of a model request as the provider got it, made again from\n"
        "the log.",
    )
    _settings(parser)
    _one(parser)
    parser.add_argument(
        "--step",
        metavar="N",
        required=True,
        help="the N-th model request of the session, or TURN.STEP",
    )
    parser.add_argument("--raw", action="store_true", help="the exact bytes, not laid out")
    parser.set_defaults(run=_lazily("_request", "request"))


def _action(actions: Any, name: str, told: str, home: str) -> argparse.ArgumentParser:
    # what is not given here must not hide what was given before the action
    parser: argparse.ArgumentParser = actions.add_parser(
        name,
        help=told,
        description=told[0].upper() + told[1:] + ".",
        argument_default=argparse.SUPPRESS,
    )
    module, _, function = home.partition(":")
    _settings(parser)
    parser.set_defaults(run=_lazily(module, function))
    return parser


def _flag(parser: argparse.ArgumentParser, name: str, told: str) -> None:
    parser.add_argument(name, action="store_true", default=False, help=told)


def _turn(parser: argparse.ArgumentParser, told: str) -> None:
    parser.add_argument("--turn", metavar="N", type=_number, default=None, help=told)


def _one(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID", help=_ID_HELP)


def _several(parser: argparse.ArgumentParser, *, needed: bool = True) -> None:
    nargs = "+" if needed else "*"
    parser.add_argument("ids", metavar="ID", nargs=nargs, default=[], help=_IDS_HELP)


def _listing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="of every folder, not of this one alone")
    parser.add_argument("--archived", action="store_true", help="those that were put away")
    parser.add_argument(
        "--limit",
        metavar="N",
        type=_number,
        help="so many at most; default: 30 on a terminal, otherwise all",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")


def _settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    folder: Any = group.add_argument("--cwd", metavar="DIR", help="as if started in this folder")
    folder.complete = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/", "tcsh": "d"}
    file: Any = group.add_argument("--config", metavar="FILE", help="one more settings file")
    file.complete = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
    inner = parser.argument_default is argparse.SUPPRESS
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=argparse.SUPPRESS if inner else [],
        dest="sets",
        help="one setting, for example seams.session_persistence=NAME; may be repeated",
    )


def _number(text: str) -> int:
    if not text.isdecimal() or not text.isascii() or len(text) > 15 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _lazily(module: str, function: str) -> Command:
    """Return a function that imports a command when it is called."""

    def command(args: argparse.Namespace) -> int:
        run: Command = getattr(import_module(f"dsh.sessions.{module}"), function)
        return run(args)

    return command
