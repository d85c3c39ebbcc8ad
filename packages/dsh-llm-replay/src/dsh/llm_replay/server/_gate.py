"""Doors in a response that a test opens when it wants the response to go on."""

from __future__ import annotations

from collections.abc import Iterator

import anyio


class Gate:
    """A door in a response: the server stops there until the test opens it.

    A gate replaces a delay wherever a test must act at a known point of the stream. It stays open
    once opened. The methods must be called in the event loop of the server; from another thread
    go through `ThreadedServer.open` and `ThreadedServer.wait_reached`.

    Args:
        name: A label for messages and for the control route of the process form.
    """

    def __init__(self, name: str = "gate") -> None:
        self.name = name
        self._opened = anyio.Event()
        self._reached = anyio.Event()

    @property
    def is_open(self) -> bool:
        """Whether the gate was opened."""
        return self._opened.is_set()

    @property
    def was_reached(self) -> bool:
        """Whether a response has come to the gate."""
        return self._reached.is_set()

    def open(self) -> None:
        """Let every response that waits here, or comes here later, go on."""
        self._opened.set()

    async def reached(self) -> None:
        """Wait until a response has come to the gate; all bytes before it were written."""
        await self._reached.wait()

    async def pass_through(self) -> None:
        """Announce an arrival and wait for the gate to open; called by the server."""
        self._reached.set()
        await self._opened.wait()

    def __repr__(self) -> str:
        return f"Gate({self.name!r}, {'open' if self.is_open else 'closed'})"


class Gates:
    """Gates by name, each made on first use."""

    def __init__(self) -> None:
        self._gates: dict[str, Gate] = {}

    def get(self, name: str) -> Gate:
        """Return the gate of this name."""
        return self._gates.setdefault(name, Gate(name))

    def __iter__(self) -> Iterator[Gate]:
        return iter(tuple(self._gates.values()))
