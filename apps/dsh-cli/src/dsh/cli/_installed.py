"""Commands of other wheels: what they get, and what stands between them and the terminal."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TextIO, cast

from dsh.cli._out import Out, stderr
from dsh.cli._starting import Starting
from dsh.cli._text import neutralise
from dsh.cli.errors import CliError

if TYPE_CHECKING:
    from dsh.cli._parser import Command
    from dsh.loader import Deployment

_STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
_HIDES: Final = frozenset({"5", "6", "8"})
"""Parameters of a style that make text blink or vanish."""
_PENDING_CHARS: Final = 64 * 1024


def run_installed(command: Command, args: argparse.Namespace) -> int:
    """Run the command of another wheel.

    It finds `args.read_settings`, which reads the deployment as `dsh run` does. Whatever it
    prints has registered secrets masked; on a terminal only styles get through, no other control
    sequence. A closed pipe and a full disk end it as they end every command.

    Args:
        command: The function.
        args: Its options.

    Returns:
        What it returned.
    """
    # only now is it known that one is to run
    with Starting():
        from dsh.cli._keys import register_keys
        from dsh.cli._logs import Logs

    register_keys()
    args.read_settings = read_settings_of
    with _guarded(), Logs() as logs:
        logs.open()
        return command(args)


def read_settings_of(args: argparse.Namespace) -> Deployment:
    """Return the deployment in effect for a command, and tell the person its notes.

    Args:
        args: Its options; `cwd`, `config` and `sets` are honoured where they exist.

    Raises:
        DshError: A file or an assignment is wrong; the message says which and where.
    """
    with Starting():
        from dsh.cli._settings import read_settings, working_folder

    options = argparse.Namespace(
        config=getattr(args, "config", None), sets=getattr(args, "sets", None) or []
    )
    deployment = read_settings(options, working_folder(getattr(args, "cwd", None)))
    err = stderr()
    for note in deployment.notes:
        err.line(f"dsh: {note}")
    return deployment


@contextmanager
def _guarded() -> Generator[None]:
    """Put a guard in front of both streams for as long as a command runs."""
    before = sys.stdout, sys.stderr
    guards = [_guard(stream, quiet=stream is before[1]) for stream in before]
    sys.stdout, sys.stderr = guards
    try:
        yield
        for guard in guards:
            guard.flush()
    finally:
        sys.stdout, sys.stderr = before


def _guard(stream: TextIO | None, *, quiet: bool) -> TextIO:
    if stream is None:
        return cast("TextIO", _Guard(Out(None), stream, quiet=quiet))
    try:
        stream.fileno()
    except (OSError, ValueError):
        return stream  # somebody captures what is printed
    return cast("TextIO", _Guard(Out(stream), stream, quiet=quiet))


class _Guard:
    """What a program uses of a text stream, in front of one of ours.

    Args:
        out: Where it writes.
        stream: The stream itself, for what it says about itself.
        quiet: Whether trouble with it is ignored, and each line is written at once.
    """

    def __init__(self, out: Out, stream: TextIO | None, *, quiet: bool) -> None:
        self._out = out
        self._stream = stream
        self._quiet = quiet
        self._pending = 0
        self.encoding: Final[str] = getattr(stream, "encoding", None) or "utf-8"
        self.errors: Final = "replace"
        self.closed: Final = False
        self.buffer: Final = _Bytes(self, out)

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._out.is_terminal

    def writable(self) -> bool:
        """Say yes."""
        return True

    def fileno(self) -> int:
        """Return the descriptor, for whoever asks how wide the terminal is."""
        if self._stream is None:
            raise OSError("there is no such stream")
        return self._stream.fileno()

    def write(self, text: str, /) -> int:
        """Take text; it is written when there is enough of it, or with `flush`."""
        self._out.write(text)
        self._pending += len(text)
        if self._pending >= _PENDING_CHARS or (self._quiet and "\n" in text):
            self.flush()
        return len(text)

    def writelines(self, lines: Iterable[str], /) -> None:
        """Take several texts."""
        for text in lines:
            self.write(text)

    def flush(self) -> None:
        """Write what was taken.

        Raises:
            ClosedPipe: Nobody reads any more.
            CliError: It could not be written.
        """
        self._pending = 0
        try:
            self._out.flush(keep=styled)
        except CliError:
            if not self._quiet:
                raise


class _Bytes:
    """The way for bytes that must arrive as they are."""

    def __init__(self, guard: _Guard, out: Out) -> None:
        self._guard = guard
        self._out = out

    def write(self, data: bytes, /) -> int:
        """Write bytes, after the text before them.

        Raises:
            ClosedPipe: Nobody reads any more.
            CliError: They could not be written.
        """
        self._guard.flush()
        self._out.write_bytes(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: they have been written."""


def styled(text: str) -> str:
    """Return text with its styles, and everything else that could drive a terminal written out."""
    parts: list[str] = []
    position = 0
    for match in _STYLE.finditer(text):
        if _HIDES.isdisjoint(match.group()[2:-1].split(";")):
            parts += neutralise(text[position : match.start()]), match.group()
            position = match.end()
    parts.append(neutralise(text[position:]))
    return "".join(parts)
