"""What the model is told about the tools."""

from __future__ import annotations

from typing import Final

from dsh.core import JsonObject

__all__ = ["KILL_TEXT", "OUTPUT_TEXT", "SECTION", "TASK_ID", "bash_parameters", "bash_text"]

SECTION: Final = """\
# Running commands

Read the end of every `bash` result before you go on. `[exit code: N]`, `[timed out after Nms]` or \
`[killed by signal: NAME]` means that the command failed: find out why from its output, and do not \
build on it as if it had worked. A result without such a line exited with 0.\
"""

_BASH: Final = """\
Run a shell command with `bash -c` and return what it printed.

Each call starts a fresh shell: directory, variables, functions and options of earlier calls are \
gone. Choose the directory with `workdir` rather than `cd`, and join steps that depend on each \
other with `&&`.

There is no terminal and nobody to answer: standard input is empty, editors and pagers are off, \
and a program that insists on asking fails. Pass answers as arguments (`git commit -m ...`, \
`apt-get -y ...`).

The result is standard output, then standard error under a `[stderr]` line, then lines in \
brackets with what else there is to know: `[exit code: N]` unless it is 0, \
`[killed by signal: NAME]`, `[timed out after Nms]`. Of very long output you get the end; the line \
`[output truncated; full output: PATH]` names a file with all of it, to be searched or read in \
parts.

A command is killed after {default} ms unless `timeout_ms` says otherwise, {maximum} ms at most. \
Start anything longer, such as servers, watchers and long builds, with `run_in_background`: you \
get a task id at once and are told when it ends; look at its output with `bash_output` and stop it \
with `bash_kill`. Do not put `&` at the end of such a command.\
"""

OUTPUT_TEXT: Final = """\
Return what a background command has printed since you last asked, and whether it still runs. \
Output is delivered once. It does not wait: when there is nothing new, do something else first; \
you are told when the command ends.\
"""

KILL_TEXT: Final = """\
Stop a background command and everything it started. Its last output can still be read with \
`bash_output`.\
"""

TASK_ID: Final[JsonObject] = {
    "type": "object",
    "properties": {
        "task_id": {
            "type": "string",
            "description": "The id that `bash` returned for the background command, as in bash-1.",
        }
    },
    "required": ["task_id"],
}


def bash_text(default_ms: int, maximum_ms: int) -> str:
    """Return the description of `bash` with the limits in force."""
    return _BASH.format(default=default_ms, maximum=maximum_ms)


def bash_parameters(default_ms: int, maximum_ms: int) -> JsonObject:
    """Return the JSON Schema of the arguments of `bash`."""
    return {
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "The shell command."},
            "description": {
                "type": "string",
                "description": (
                    "What the command does, in five to ten words, for the person who watches:"
                    ' "Run the unit tests of the parser".'
                ),
            },
            "timeout_ms": {
                "type": "number",
                "description": (
                    f"Milliseconds until the command is killed; {default_ms} when absent, at most"
                    f" {maximum_ms}. Has no effect on background commands."
                ),
            },
            "workdir": {
                "type": "string",
                "description": (
                    "Directory to run in; a relative one starts at the session's directory, which"
                    " is also the default."
                ),
            },
            "run_in_background": {
                "type": "boolean",
                "description": "Return a task id at once and let the command run on.",
            },
        },
        "required": ["command", "description"],
    }
