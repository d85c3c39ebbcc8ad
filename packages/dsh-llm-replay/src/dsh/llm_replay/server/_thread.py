"""The server in a thread of its own, for tests that drive a blocking program."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from dsh.llm_replay.server._gate import Gate
from dsh.llm_replay.server._record import Attempt, Outcome
from dsh.llm_replay.server._script import Entry, Script
from dsh.llm_replay.server._server import WireServer

T = TypeVar("T")


class ThreadedServer:
    """A handle on a server whose event loop runs in another thread; every method blocks."""

    def __init__(self, portal: BlockingPortal, server: WireServer) -> None:
        self._portal = portal
        self._server = server
        self.url = server.url
        """The base URL to give to an adapter."""
        self.port = server.port
        """The bound port."""

    @property
    def attempts(self) -> Sequence[Attempt]:
        """A copy of the list of accepted requests; entries of running requests still change."""
        return self.call(lambda: tuple(self._server.attempts))

    @property
    def connections(self) -> int:
        """How many TCP connections were accepted so far."""
        return self._server.connections

    def call(self, function: Callable[[], T]) -> T:
        """Run a function in the event loop of the server, for instance `server.refuse`."""
        return self._portal.call(function)

    def append(self, entry: Entry) -> None:
        """Add an entry at the end of the script."""
        self._portal.call(self._server.append, entry)

    def listen(self) -> None:
        """Accept connections again."""
        self._portal.call(self._server.listen)

    def refuse(self) -> None:
        """Refuse new connections and drop idle ones."""
        self._portal.call(self._server.refuse)

    def gate(self, name: str) -> Gate:
        """Return the gate of this name, made on first use."""
        return self._portal.call(self._server.gate, name)

    def open(self, gate: Gate | str) -> None:
        """Open a gate."""
        found = self.gate(gate) if isinstance(gate, str) else gate
        self._portal.call(found.open)

    def wait_reached(self, gate: Gate | str, timeout: float = 10) -> None:
        """Wait until a response has come to a gate.

        Raises:
            TimeoutError: If that takes longer than `timeout` seconds.
        """
        found = self.gate(gate) if isinstance(gate, str) else gate
        self._portal.call(_limited, timeout, found.reached)

    def wait_attempt(self, number: int = 1, timeout: float = 10) -> Attempt:
        """Wait until the request of this number was accepted.

        Raises:
            TimeoutError: If that takes longer than `timeout` seconds.
        """
        attempt: Attempt = self._portal.call(_limited, timeout, self._server.attempt, number)
        return attempt

    def wait_finished(self, number: int = 1, timeout: float = 10) -> Outcome:
        """Wait until the request of this number was accepted and has ended.

        Raises:
            TimeoutError: If that takes longer than `timeout` seconds.
        """
        attempt = self.wait_attempt(number, timeout)
        outcome: Outcome = self._portal.call(_limited, timeout, attempt.finished)
        return outcome

    def assert_consumed(self) -> None:
        """Check that requests have consumed the whole script."""
        self._portal.call(self._server.assert_consumed)


@contextmanager
def serve_in_thread(script: Script = (), **options: Any) -> Generator[ThreadedServer]:
    """Run a server in a background thread while the block runs.

    Args:
        script: The script.
        options: The keyword arguments of `WireServer`.

    Yields:
        The handle, once the server accepts connections.
    """
    with (
        start_blocking_portal(backend="asyncio", name="dsh-wire-server") as portal,
        portal.wrap_async_context_manager(WireServer(script, **options)) as server,
    ):
        yield ThreadedServer(portal, server)


async def _limited(timeout: float, function: Callable[..., Any], *args: Any) -> Any:
    with anyio.fail_after(timeout):
        return await function(*args)
