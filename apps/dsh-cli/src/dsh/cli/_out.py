"""Writing to stdout and stderr so that no trouble with either goes unnoticed or gets loud."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Final, TextIO

from dsh.cli._exit_codes import CLOSED_PIPE
from dsh.cli._text import neutralise
from dsh.cli.errors import CliError
from dsh.core import secrets


class ClosedPipe(CliError):
    """Whoever read our output has gone away."""

    code = "CLOSED_PIPE"
    exit_code = CLOSED_PIPE

    def __init__(self) -> None:
        super().__init__("stdout was closed")


class Out:
    """The standard output, collected and written in few calls.

    Text is encoded for the stream it goes to, never with an error. On a terminal, control
    characters are written out instead of obeyed.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._parts: list[str] = []
        self._fd = _descriptor(stream)
        self.is_terminal: Final = _is_terminal(stream)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self._encoding = "utf-8" if encoding.lower() in {"ascii", "us-ascii"} else encoding
        self.at_line_start = True
        """Whether the next character begins a line."""

    def write(self, text: str) -> None:
        """Add text; it is written by the next `flush`."""
        if text:
            self._parts.append(text)
            self.at_line_start = text[-1] == "\n"

    @property
    def pending(self) -> bool:
        """Whether there is something to flush."""
        return bool(self._parts)

    def flush(self, keep: Callable[[str], str] | None = None) -> None:
        """Write what was collected.

        Args:
            keep: Makes text safe for a terminal, where that is not to write out every control
                character.

        Raises:
            ClosedPipe: Nobody reads any more.
            CliError: It could not be written, for example because the disk is full.
        """
        if not self._parts:
            return
        text = secrets.redact("".join(self._parts))
        self._parts.clear()
        if self.is_terminal:
            text = (keep or neutralise)(text)
        self.write_bytes(text.encode(self._encoding, "replace"))

    def write_bytes(self, data: bytes) -> None:
        """Write bytes as they are, at once.

        Raises:
            ClosedPipe: Nobody reads any more.
            CliError: They could not be written.
        """
        if self._fd is None:
            raise CliError("stdout is closed", code="OUTPUT")
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except BlockingIOError as error:
            raise CliError("stdout does not take any more output", code="OUTPUT") from error
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise ClosedPipe from error
            raise CliError(f"stdout cannot be written: {error.strerror}", code="OUTPUT") from error

    def line(self, text: str = "") -> None:
        """Write one line at once.

        Raises:
            ClosedPipe: Nobody reads any more.
            CliError: It could not be written.
        """
        self.write(text + "\n")
        self.flush()


class Err:
    """The standard error: one line at a time, safe to show; trouble with it is ignored."""

    def __init__(self, stream: TextIO | None) -> None:
        self._fd = _descriptor(stream)
        self.is_terminal: Final = _is_terminal(stream)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self._encoding = encoding
        self._dim = self.is_terminal and not os.environ.get("NO_COLOR")

    def line(self, text: str, *, dim: bool = False) -> None:
        """Write text and a newline.

        Args:
            text: What to show; secrets and control characters do not get through.
            dim: Show it in the background, where the terminal can.
        """
        if self._fd is None:
            return
        shown = neutralise(secrets.redact(text))
        if dim and self._dim:
            shown = f"\x1b[2m{shown}\x1b[22m"
        data = memoryview((shown + "\n").encode(self._encoding, "backslashreplace"))
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            self._fd = None  # there is nowhere left to say that there is nowhere left


def stdout() -> Out:
    """Return the process's standard output."""
    return Out(sys.stdout)


def stderr() -> Err:
    """Return the process's standard error."""
    return Err(sys.stderr)


def share_terminal(out: Out, err: Err) -> bool:
    """Whether both are shown on a terminal, so that lines of one may cut into the other."""
    return out.is_terminal and err.is_terminal


def mute_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's own last flush cannot fail."""
    try:
        descriptor = os.open(os.devnull, os.O_WRONLY)
        os.dup2(descriptor, 1)
        os.close(descriptor)
    except OSError:
        return


def _descriptor(stream: TextIO | None) -> int | None:
    if stream is None:
        return None
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:
        return False
