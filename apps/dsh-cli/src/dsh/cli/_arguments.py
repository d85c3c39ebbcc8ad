"""Parts of the command line: parsers whose errors are exceptions, and the values of options."""

from __future__ import annotations

import argparse
import re
from typing import Any, Final, NoReturn

from dsh.cli._out import stdout
from dsh.cli.errors import UsageError

FILES: Final = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
FOLDERS: Final = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/", "tcsh": "d"}
"""What a shell offers for an option's value, in the terms of shtab."""


_ID: Final = re.compile(r"[0-9a-f]{4,32}")


class Parser(argparse.ArgumentParser):
    """A parser whose errors are exceptions, so that they can be told in more than one way."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            UsageError: Always.
        """
        raise UsageError(message, hint=f"see {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = action.choices
        if action.nargs != argparse.PARSER or choices is None or value in choices:
            super()._check_value(action, value)
            return
        known = [str(choice) for choice in choices]
        from difflib import get_close_matches  # a slip is rare

        near = get_close_matches(str(value), known, n=1, cutoff=0.5)
        if near:
            hint = f"did you mean `{self.prog} {near[0]}`? see {self.prog} --help"
        elif "show" in known and _ID.fullmatch(str(value)):
            hint = f"to read a session: {self.prog} show {value}"
        else:
            hint = f"see {self.prog} --help"
        raise UsageError(
            f"invalid choice: {str(value)!r}; {self.prog} has {', '.join(known)}", hint=hint
        )

    def _print_message(self, message: str, file: Any = None) -> None:
        # help goes the way of all output, so that a closed pipe stays quiet
        if message:
            stdout().line(message.rstrip("\n"))


class SubParser(Parser):
    """The parser of one command."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        options.setdefault("allow_abbrev", False)
        super().__init__(**options)


def completes(action: Any, what: dict[str, str]) -> None:
    """Have a shell offer `FILES` or `FOLDERS` for an option's value."""
    action.complete = what


def name(text: str) -> str:
    """Return a text that is not blank."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty")
    return text


def count(text: str) -> int:
    """Return a positive whole number."""
    if not text.isdecimal() or not text.isascii() or len(text) > 15 or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def duration(text: str) -> float:
    """Return a time in seconds, written as a number or with a unit."""
    factors = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, factor = (text[:-1], factors[text[-1]]) if text[-1:] in factors else (text, 1.0)
    try:
        seconds = float(number) * factor
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 90, 90s, 5m or 1h")
    return seconds
