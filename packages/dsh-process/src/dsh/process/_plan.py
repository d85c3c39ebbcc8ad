"""One start of a child: what is asked for, its descriptors, the hand-over to a monitor."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

import anyio

from dsh.process._channel import Channel
from dsh.process._child import Pump
from dsh.process._launcher import Helper
from dsh.process._output import OutputCollector
from dsh.process._streams import FdReceiveStream, FdSendStream
from dsh.process.errors import MonitorLostError, SpawnError

__all__ = ["StartPlan", "Stdin", "Stdout", "request_of"]

_START_S: Final = 30.0

Stdin: TypeAlias = "Literal['pipe'] | bytes | int | None"
"""`'pipe'`: a stream to write to. Bytes: written, then closed. A descriptor: given to the child,
which shares it. None: `/dev/null`."""

Stdout: TypeAlias = "Literal['pipe', 'null', 'stdout'] | OutputCollector | int"
"""`'pipe'`: a stream to read from. `'null'`: thrown away. `'stdout'` (standard error only): the
same as standard output. A collector: fed until the last writer is gone. A descriptor: given to
the child, which shares it."""


class StartPlan:
    """The descriptors of one start: what the child gets, what stays here."""

    def __init__(self, program: str) -> None:
        self.program = program
        self.targets: dict[int, int] = {}
        self.stdin: FdSendStream | None = None
        self.stdout: FdReceiveStream | None = None
        self.stderr: FdReceiveStream | None = None
        self.pumps: list[Pump] = []
        self._given: list[int] = []
        self._theirs: socket.socket | None = None
        self._channel: Channel | None = None

    def prepare(self, stdin: Stdin, stdout: Stdout, stderr: Stdout, fds: Mapping[int, int]) -> None:
        """Open the pipes.

        Raises:
            SpawnError: Out of descriptors.
        """
        try:
            self._open(stdin, stdout, stderr, fds)
        except OSError as error:
            raise SpawnError.from_report("pipe", error.errno or errno.EIO, self.program) from error

    def _open(self, stdin: Stdin, stdout: Stdout, stderr: Stdout, fds: Mapping[int, int]) -> None:
        self.targets.update(fds)
        if isinstance(stdin, int):
            self.targets[0] = stdin
        elif stdin is not None:
            reading, writing = os.pipe()
            self._given.append(reading)
            self.targets[0] = reading
            self.stdin = FdSendStream(writing)
        self.stdout = self._output(1, stdout)
        self.stderr = self._output(2, stderr)
        ours, self._theirs = socket.socketpair()
        self._channel = Channel(ours)

    def _output(self, number: int, wanted: Stdout) -> FdReceiveStream | None:
        if isinstance(wanted, int):
            self.targets[number] = wanted
        elif wanted == "stdout":
            if 1 in self.targets:
                self.targets[number] = self.targets[1]
        elif wanted != "null":
            reading, writing = os.pipe()
            self._given.append(writing)
            self.targets[number] = writing
            stream = FdReceiveStream(reading)
            if wanted == "pipe":
                return stream
            self.pumps.append(Pump(stream, wanted))
        return None

    async def launch(self, helper: Helper, request: Mapping[str, object]) -> tuple[Channel, int]:
        """Hand everything to a new monitor and wait for its report.

        Raises:
            SpawnError: The child could not be started.
            MonitorLostError: The monitor or the helper was killed meanwhile.
        """
        channel, theirs = self._channel, self._theirs
        assert channel is not None
        assert theirs is not None
        await helper.request([theirs.fileno(), *self.targets.values()])
        self._close_given()
        try:
            with anyio.fail_after(_START_S):
                await channel.send({**request, "fds": list(self.targets)})
                report = await channel.read()
        except TimeoutError as error:
            raise SpawnError(
                f"the command did not start within {_START_S:g} s",
                code=SpawnError.SPAWN_TIMEOUT,
                hint="the machine is overloaded, or the working directory hangs",
            ) from error
        if report is None:
            raise MonitorLostError("the command was not started: its monitor process was killed")
        if report["ev"] == "failed":
            raise SpawnError.from_report(report["step"], report["errno"], report["what"])
        self._channel = None
        return channel, report["pid"]

    def _close_given(self) -> None:
        """Close what the monitor has now; its copies alone must decide when a stream ends."""
        while self._given:
            os.close(self._given.pop())
        if self._theirs is not None:
            self._theirs.close()

    def abandon(self) -> None:
        """Close whatever is still open; a command that was just started is killed by that."""
        self._close_given()
        if self._channel is not None:
            self._channel.close()
        for stream in (self.stdin, self.stdout, self.stderr, *(p.stream for p in self.pumps)):
            if stream is not None:
                stream.close()
        for pump in self.pumps:
            pump.collector.finish()


def request_of(
    argv: Sequence[str],
    cwd: str | os.PathLike[str] | None,
    env: Mapping[str, str],
    grace_ms: float,
) -> dict[str, object]:
    """Put down what to start, as the monitor reads it.

    Raises:
        SpawnError: The operating system could not even be asked for it.
    """
    _check(argv, env)
    directory = os.fspath(cwd or "")
    if not directory.startswith("/"):
        try:
            # Not normalised: `link/..` means what the kernel says it means.
            directory = os.path.join(os.getcwd(), directory)
        except FileNotFoundError as error:
            raise SpawnError.from_report("cwd", errno.ENOENT, "the harness's own") from error
    if "\0" in directory:
        raise SpawnError.from_report("cwd", errno.ENOENT, directory)
    return {
        "argv": [_as_bytes_are(argument) for argument in argv],
        "cwd": _as_bytes_are(directory),
        "env": {_as_bytes_are(name): _as_bytes_are(value) for name, value in env.items()},
        "grace": max(0.0, grace_ms),
    }


def _as_bytes_are(text: str) -> str:
    """Text that the helper, whose encoding is UTF-8, turns into the bytes meant here.

    Raises:
        SpawnError: There are no such bytes.
    """
    if text.isascii():
        return text
    try:
        return os.fsencode(text).decode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise SpawnError(
            f"{text[error.start : error.end]!r} cannot be passed to a child in the encoding"
            f" {error.encoding!r}",
            code=SpawnError.INVALID_COMMAND,
        ) from error


def _check(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Refuse what the operating system could not even be asked for."""
    if not argv or not argv[0]:
        raise SpawnError("a command needs a program to run", code=SpawnError.INVALID_COMMAND)
    for argument in argv:
        if "\0" in argument:
            raise SpawnError(
                f"an argument of {argv[0]!r} contains a NUL character",
                code=SpawnError.INVALID_COMMAND,
                hint="pass binary data through stdin or a file",
            )
    for name, value in env.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise SpawnError(
                f"the environment variable {name!r} cannot be set",
                code=SpawnError.INVALID_ENVIRONMENT,
                hint="a name is not empty and has no '=', neither name nor value has a NUL",
            )
