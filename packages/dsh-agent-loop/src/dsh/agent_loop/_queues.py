"""What was said to an agent and waits for its turn."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from dsh.agent import Receipt
from dsh.agent.loopkit import ReceiptBook
from dsh.llm import ContentBlock
from dsh.session import MessageSource


@dataclass(frozen=True, slots=True)
class Queued:
    """A prompt or a steering message that no turn has taken in."""

    content: tuple[ContentBlock, ...]
    source: MessageSource
    receipt: Receipt


class Queues:
    """The prompts for the next turn and the steering for the turn under way, oldest first."""

    __slots__ = ("_book", "_prompts", "_steering")

    def __init__(self, book: ReceiptBook) -> None:
        self._book = book
        self._prompts: deque[Queued] = deque()
        self._steering: deque[Queued] = deque()

    @property
    def has_prompts(self) -> bool:
        """Whether a prompt waits."""
        return bool(self._prompts)

    @property
    def has_steering(self) -> bool:
        """Whether steering waits."""
        return bool(self._steering)

    def add(
        self, content: tuple[ContentBlock, ...], source: MessageSource, *, steer: bool
    ) -> Receipt:
        """Queue a prompt, or a steering message."""
        receipt = self._book.issue()
        queue = self._steering if steer else self._prompts
        queue.append(Queued(content, source, receipt))
        return receipt

    def take_prompts(self) -> list[Queued]:
        """Take every prompt that was not withdrawn."""
        self.prune()
        batch = list(self._prompts)
        self._prompts.clear()
        return batch

    def next_steering(self) -> Queued | None:
        """Take the next steering message that was not withdrawn."""
        self.prune()
        return self._steering.popleft() if self._steering else None

    def steering_to_prompts(self) -> None:
        """Make prompts of the steering that came too late for its turn."""
        self._prompts.extend(self._steering)
        self._steering.clear()

    def drop(self, why: str) -> None:
        """Empty both queues."""
        self._drop(self._prompts, why)
        self.drop_steering(why)

    def drop_steering(self, why: str) -> None:
        """Empty the steering queue."""
        self._drop(self._steering, why)

    def prune(self) -> None:
        """Leave out what was withdrawn."""
        for queue in (self._prompts, self._steering):
            for item in [item for item in queue if item.receipt.settled]:
                queue.remove(item)
                self._book.drop([item.receipt], "withdrawn")

    def _drop(self, queue: deque[Queued], why: str) -> None:
        receipts = [item.receipt for item in queue]
        queue.clear()
        self._book.drop(receipts, why)
