"""The command line, as argparse sees it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any, Final

from dsh.cli._arguments import FILES, FOLDERS, Parser, SubParser, completes, count, duration, name

Command = Callable[[argparse.Namespace], int]

BUILT_IN: Final = frozenset(
    {"run", "demo", "doctor", "config", "plugins", "new", "login", "trust", "completion"}
)
"""Commands that need no look at what else is installed."""

_DESCRIPTION: Final = "Run an agent in a terminal, and see what it is made of."
_EXIT_CODES: Final = """\
exit codes: 0 completed, 1 error, 2 usage or configuration, 3 a limit was reached,
4 refused or blocked by policy, 130 interrupted, 141 output closed, 143 terminated
"""
_EXAMPLES: Final = """\
examples:
  dsh demo                                  see it work: no key, no network
  dsh login                                 keep an API key
  dsh run "make the failing test pass"      let the agent do a task here
  dsh run --continue "now the docs"         go on with the last session of this folder
  git diff | dsh run "review this:" -       `-` adds what standard input holds
"""
_SCHEMA_USE: Final = """\
to complete and check dsh.yaml in an editor with a YAML language server:
  dsh config schema > ~/.dsh/dsh.schema.json
and as the first line of ~/.dsh/dsh.yaml:
  # yaml-language-server: $schema=dsh.schema.json
"""


def build_parser(load: Callable[[str], Command], extra: Iterable[Any] = ()) -> Parser:
    """Return the parser of the whole command.

    Args:
        load: Returns the function of a built-in command by its name, without importing it yet.
        extra: Functions of installed wheels that add commands, given the sub-parsers.
    """
    parser = Parser(
        prog="dsh",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands: Any = parser.add_subparsers(
        dest="command", metavar="COMMAND", parser_class=SubParser, title="commands"
    )
    _run(commands, load("run"))
    _demo(commands, load("demo"))
    _doctor(commands, load("doctor"))
    _config(commands, load("config"))
    _plugins(commands, load("plugins"))
    _new(commands, load("new"))
    _login(commands, load("login"))
    _trust(commands, load("trust"))
    _completion(commands, load("completion"))
    for register in extra:
        register(commands)
    return parser


def _run(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "run",
        help="give the agent a task and wait for the answer",
        description="Give the agent a task. The answer goes to standard output as it comes;\n"
        "what the agent does is shown on standard error.",
        epilog=_EXIT_CODES,
    )
    parser.add_argument(
        "task",
        nargs="*",
        metavar="TASK",
        help="what to do; a last word `-` adds what standard input holds; without a task, or with "
        "`-` alone, all of it is read there. Otherwise standard input is left alone",
    )
    parser.add_argument(
        "--model", metavar="NAME", type=name, help="provider/model, or a model's bare name"
    )
    parser.add_argument(
        "--effort", metavar="LEVEL", type=name, help="how hard the model shall think"
    )
    _session_options(parser)
    _deployment_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--json", action="store_true", help="print one JSON event a line, and nothing else"
    )
    output.add_argument(
        "--quiet", action="store_true", help="no lines about tool calls and the session"
    )
    schema = output.add_argument(
        "--output-schema",
        metavar="FILE",
        help="a JSON Schema the answer must fit; only the checked JSON is printed",
    )
    message = output.add_argument(
        "--output-last-message", metavar="FILE", help="also write the final answer to a file"
    )
    completes(schema, FILES)
    completes(message, FILES)
    limits = parser.add_argument_group("limits")
    limits.add_argument("--max-steps", metavar="N", type=count, help="model requests")
    limits.add_argument(
        "--max-tokens", metavar="N", type=count, help="output tokens of one model request"
    )
    limits.add_argument(
        "--max-turn-tokens", metavar="N", type=count, help="output tokens of the whole task"
    )
    limits.add_argument("--timeout", metavar="TIME", type=duration, help="seconds, or 90s, 5m, 1h")
    parser.set_defaults(run=command)


def _session_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "session", "a run is kept as a session, which another run can go on with"
    ).add_mutually_exclusive_group()
    group.add_argument(
        "--resume",
        metavar="ID",
        type=name,
        help="go on with this session; the beginning of its id is enough",
    )
    group.add_argument(
        "--continue",
        action="store_true",
        dest="continue_",
        help="go on with the newest session of this folder",
    )
    group.add_argument(
        "--fork",
        metavar="ID[:TURN]",
        type=name,
        help="go on with a copy of a session, up to the end of a turn; --cwd moves the copy",
    )
    group.add_argument("--ephemeral", action="store_true", help="do not keep the session")


def _demo(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "demo",
        help="watch a scripted model repair a small project; no key, no network",
        description="Repair a small broken project in a temporary folder. The model is scripted\n"
        "and served on this machine; everything else is the real thing.",
    )
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--crash",
        action="store_true",
        help="kill the process while a command runs, then go on in a new one",
    )
    kind.add_argument(
        "--swap", action="store_true", help="do the task once on each installed session store"
    )
    parser.set_defaults(run=command)


def _doctor(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "doctor",
        help="say what is installed, what is used and why, and what is missing",
        description="Say what is installed, which provider a service gets if something needs it,\n"
        "and why, where settings and keys come from, and what is missing. Exit code 1 if\n"
        "something is.",
    )
    _deployment_options(parser)
    parser.add_argument("--model", metavar="NAME", type=name, help="the model to check")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=command)


def _config(commands: Any, command: Command) -> None:
    parser = commands.add_parser("config", help="show the settings in effect, or what is allowed")
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=SubParser, title="actions"
    )
    show = actions.add_parser(
        "show",
        help="print the merged settings with the origin of each",
        description="Print the merged settings as YAML, with the origin of each as a comment.\n"
        "Expressions are shown as written and secrets are masked. Nothing is loaded.",
    )
    _deployment_options(show)
    show.add_argument(
        "--defaults", action="store_true", help="only what dsh ships; no file is read"
    )
    actions.add_parser(
        "schema",
        help="print the JSON Schema of dsh.yaml with what is installed, for editors",
        description="Print the JSON Schema of dsh.yaml: its keys, the installed plugins and their\n"
        "settings. Plugins are imported for it, not started; one that does not import is named on\n"
        "standard error and left out.",
        epilog=_SCHEMA_USE,
    )
    parser.set_defaults(run=command)


def _plugins(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "plugins",
        help="list the installed plugins",
        description="List the installed plugins, the wheel each comes from, the service it\n"
        "provides, and whether the settings in effect use it; `provider` is used once something\n"
        "needs its service. Nothing is loaded.",
    )
    _deployment_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.set_defaults(run=command)


def _new(commands: Any, command: Command) -> None:
    parser = commands.add_parser("new", help="write the project of a new plugin")
    things = parser.add_subparsers(
        dest="what", metavar="WHAT", parser_class=SubParser, title="what to make"
    )
    plugin = things.add_parser(
        "plugin",
        help="a project with a plugin, its tests and a README",
        description="Write a small, complete project: a plugin that works, its tests, a manifest\n"
        "that offers it to dsh, and a README. Nothing that exists is overwritten.",
    )
    plugin.add_argument(
        "name", metavar="NAME", help="words joined by hyphens; also the name of the project"
    )
    plugin.add_argument(
        "--kind",
        required=True,
        choices=("tool", "gate", "provider", "ui"),
        help="what it is: a tool for the model, a gate in front of tools, a provider of a "
        "service, or a user interface",
    )
    completes(
        plugin.add_argument(
            "--into", metavar="DIR", help="the folder to make it in; default: this one"
        ),
        FOLDERS,
    )
    plugin.add_argument(
        "--seam", metavar="KEY", help="the service a provider provides; default: bash"
    )
    plugin.add_argument("--description", metavar="TEXT", help="one line on what it is")
    plugin.add_argument("--author", metavar="NAME", help="NAME, or 'NAME <ADDRESS>'")
    parser.set_defaults(run=command)


def _login(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "login",
        help="keep an API key in your own folder",
        description="Keep an API key in your own folder, readable by you alone. It is asked for,\n"
        "or read from standard input if that is no terminal. A key in the environment wins.",
    )
    parser.add_argument(
        "provider", nargs="?", default="deepseek", metavar="PROVIDER", help="default: deepseek"
    )
    parser.add_argument("--remove", action="store_true", help="forget the key")
    parser.set_defaults(run=command)


def _trust(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "trust",
        help="let a project's dsh.yaml take full effect",
        description="Vouch for a project's dsh.yaml as it is now. A changed file must be\n"
        "trusted again. Read the file first: it can load code and name endpoints.",
    )
    parser.add_argument(
        "path", nargs="?", metavar="PATH", help="a file or a folder; default: this project"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--revoke", action="store_true", help="no longer trust it")
    action.add_argument("--list", action="store_true", help="list what is trusted")
    parser.set_defaults(run=command)


def _completion(commands: Any, command: Command) -> None:
    parser = commands.add_parser(
        "completion",
        help="print a completion script for a shell",
        description="Print a completion script. For bash, for example:\n"
        '  eval "$(dsh completion bash)"',
    )
    parser.add_argument("shell", metavar="SHELL", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=command)


def _deployment_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("settings")
    completes(group.add_argument("--cwd", metavar="DIR", help="the folder to work in"), FOLDERS)
    completes(group.add_argument("--config", metavar="FILE", help="one more settings file"), FILES)
    group.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="sets",
        help="one setting, for example bash.timeout_ms=5000; may be repeated",
    )
