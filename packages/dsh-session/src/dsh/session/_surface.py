"""The surface: the ordered list of events that make up the model's history."""

from __future__ import annotations

from collections.abc import Sequence

from dsh.llm import Message
from dsh.session._derive import message_of
from dsh.session._event import Replace, SessionEvent, SurfaceOp
from dsh.session.errors import SurfaceError

__all__ = ["Surface"]


class Surface:
    """Which events stand in the history, in order, and the messages they make.

    Kept up to date with every append, so reading it costs nothing that grows with the log.
    """

    __slots__ = ("_cached", "_events", "_generation", "_messages", "_nodes")

    def __init__(self, events: Sequence[SessionEvent]) -> None:
        self._events = events
        self._nodes: list[int] = []
        self._messages: list[Message | None] = []
        self._cached: tuple[Message, ...] | None = ()
        self._generation = 0

    @property
    def nodes(self) -> tuple[int, ...]:
        """Sequence numbers of the events on the surface, head to tail."""
        return tuple(self._nodes)

    @property
    def generation(self) -> int:
        """Grows with every replace and every `invalidate`, and with nothing else."""
        return self._generation

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, seq: object) -> bool:
        return seq in self._nodes

    def shadowed(self, op: Replace) -> tuple[int, ...]:
        """Return the nodes that a replace would take off the surface, in order.

        Raises:
            SurfaceError: Code `REPLACE_START_NOT_FOUND`, `REPLACE_END_NOT_FOUND` or
                `REPLACE_REVERSED`.
        """
        start, end = self._range(op)
        return tuple(self._nodes[start : end + 1])

    def accept(self, op: SurfaceOp) -> None:
        """Raise what `fold` would raise for an event with this operation."""
        if isinstance(op, Replace):
            self._range(op)

    def invalidate(self) -> None:
        """Derive everything anew from the log; the result is the same."""
        self._generation += 1
        self._messages = [message_of(self._events[seq].data) for seq in self._nodes]
        self._cached = None

    def messages(self) -> tuple[Message, ...]:
        """Return the history; the same message objects every time."""
        if self._cached is None:
            self._cached = tuple([item for item in self._messages if item is not None])
        return self._cached

    def fold(self, event: SessionEvent) -> None:
        """Take in an event that carries a surface operation.

        Raises:
            SurfaceError: See `shadowed`; nothing has changed then.
        """
        op = event.surface_op
        if isinstance(op, Replace):
            start, end = self._range(op)
            self._nodes[start : end + 1] = [event.seq]
            self._messages[start : end + 1] = [message_of(event.data)]
            self._generation += 1
        else:
            self._nodes.append(event.seq)
            self._messages.append(message_of(event.data))
        self._cached = None

    def _range(self, op: Replace) -> tuple[int, int]:
        start = self._position(op.start, "start", SurfaceError.REPLACE_START_NOT_FOUND)
        end = self._position(op.end, "end", SurfaceError.REPLACE_END_NOT_FOUND)
        if start > end:
            raise SurfaceError(
                f"replace: start {op.start} stands after end {op.end} on the surface",
                code=SurfaceError.REPLACE_REVERSED,
            )
        return start, end

    def _position(self, seq: int, which: str, code: str) -> int:
        try:
            return self._nodes.index(seq)
        except ValueError:
            raise SurfaceError(
                f"replace: {which} {seq} not found on the surface", code=code
            ) from None
