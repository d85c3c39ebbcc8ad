"""Receipts: what `send` and `steer` give back, and the book a loop keeps of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dsh.agent._outcome import Blocked, Dropped, OutcomeReason, TurnOutcome, turn_outcome
from dsh.agent._pulse import Pulse
from dsh.agent.errors import AgentDisposed
from dsh.session import Session


class _Progress:
    """How far a prompt has come; written by the book, read by the receipt."""

    __slots__ = ("closed", "end", "fate", "pulse", "start", "turn")

    def __init__(self) -> None:
        self.pulse = Pulse()
        self.turn: int | None = None
        self.start = 0
        self.end: int | None = None
        self.fate: OutcomeReason | None = None
        self.closed = False

    def drop(self, reason: str) -> None:
        """Settle the prompt without a turn."""
        self.fate = Dropped(reason)
        self.end = 0
        self.pulse.fire()


class Receipt:
    """Follows one prompt from the queue to the end of the turn that took it in.

    A receipt holds no task and may be dropped freely.
    """

    __slots__ = ("_agent_id", "_progress", "_refuse", "_session")

    def __init__(
        self,
        agent_id: str,
        session: Session,
        progress: _Progress,
        refuse: Callable[[], None] | None = None,
    ) -> None:
        self._agent_id = agent_id
        self._session = session
        self._progress = progress
        self._refuse = refuse

    @property
    def turn(self) -> int | None:
        """The turn that took the prompt in; None while it is queued or when it was dropped."""
        return self._progress.turn

    @property
    def start(self) -> int:
        """Sequence number of that turn's `turn/start`; meaningless while `turn` is None."""
        return self._progress.start

    @property
    def settled(self) -> bool:
        """Whether `done()` has its answer."""
        return self._progress.end is not None or self._progress.closed

    async def settle(self) -> None:
        """Wait until the receipt is settled, whatever became of the prompt.

        Raises:
            LifecycleDeadlock: The agent's own turn would wait for its end, or for the next one.
        """
        if self._refuse is not None and not self.settled:
            self._refuse()
        while not self.settled:
            await self._progress.pulse.wait()

    async def done(self) -> TurnOutcome:
        """Wait until the turn that took the prompt in is over and checkpointed.

        Raises:
            AgentDisposed: The agent was disposed before the prompt's turn came.
            LifecycleDeadlock: The agent's own turn would wait for its end, or for the next one.
        """
        await self.settle()
        return self.outcome()

    def outcome(self) -> TurnOutcome:
        """Return what `done()` returns, without waiting.

        Raises:
            AgentDisposed: The agent was disposed before the prompt's turn came.
            RuntimeError: The receipt is not settled.
        """
        progress = self._progress
        if progress.end is None:
            if progress.closed:
                raise AgentDisposed(self._agent_id, "a queued prompt was never run")
            raise RuntimeError("the receipt is not settled; await done()")
        if progress.fate is not None or progress.turn is None:
            fate = progress.fate or Dropped("the prompt reached no turn")
            return TurnOutcome(progress.turn, fate, "", None, None, None)
        return turn_outcome(self._session, progress.turn, progress.start, progress.end)

    def withdraw(self, reason: str = "withdrawn") -> bool:
        """Take the prompt back, if no turn has taken it in yet; other prompts are not touched.

        Args:
            reason: Why, for the outcome, which is `Dropped`.

        Returns:
            Whether the prompt was still waiting.
        """
        progress = self._progress
        if progress.turn is not None or self.settled:
            return False
        progress.drop(reason)
        return True

    def follow(self, pulse: Pulse) -> None:
        """Fire `pulse` whenever the prompt is taken in, dropped or settled."""
        self._progress.pulse = pulse


class ReceiptBook:
    """The receipts of one agent, for its loop.

    Call `issue` when a prompt is queued, `admit` when the turn that takes it in has logged its
    `turn/start`, `block` when a policy vetoes it, `drop` when a queue is emptied, `settle` after
    the checkpoint of a closed turn, and `close` when the driver has exited. A prompt whose
    receipt is settled before its turn came has been withdrawn: leave it out, and `drop` it.

    Args:
        agent_id: Key of the agent, for messages.
        session: Its log.
        refuse: Called before somebody waits for a receipt; raises where that would never end.
    """

    __slots__ = ("_admitted", "_agent_id", "_queued", "_refuse", "_session")

    def __init__(
        self, agent_id: str, session: Session, refuse: Callable[[], None] | None = None
    ) -> None:
        self._agent_id = agent_id
        self._session = session
        self._refuse = refuse
        self._queued: dict[Receipt, _Progress] = {}
        self._admitted: dict[Receipt, _Progress] = {}

    def issue(self) -> Receipt:
        """Make the receipt of a prompt that was just queued."""
        progress = _Progress()
        receipt = Receipt(self._agent_id, self._session, progress, self._refuse)
        self._queued[receipt] = progress
        return receipt

    def admit(self, receipts: Iterable[Receipt], turn: int, start: int) -> None:
        """Note that a turn took these prompts in.

        Args:
            receipts: Receipts of the prompts.
            turn: Number of the turn.
            start: Sequence number of its `turn/start`.
        """
        for receipt in receipts:
            progress = self._queued.pop(receipt)
            progress.turn = turn
            progress.start = start
            self._admitted[receipt] = progress
            progress.pulse.fire()

    def block(self, receipt: Receipt, reason: str) -> None:
        """Note that a policy vetoed an admitted prompt."""
        self._admitted[receipt].fate = Blocked(reason)

    def drop(self, receipts: Iterable[Receipt], reason: str) -> None:
        """Settle queued prompts that will never reach a turn; withdrawn ones stay as they are."""
        for receipt in receipts:
            progress = self._queued.pop(receipt)
            if progress.end is None:
                progress.drop(reason)

    def settle(self) -> None:
        """Settle every admitted prompt; their turn is closed and checkpointed."""
        admitted, self._admitted = self._admitted, {}
        for progress in admitted.values():
            progress.end = self._session.seq
            progress.pulse.fire()

    def close(self) -> None:
        """Settle what is admitted, and fail whoever waits for a prompt that never ran."""
        self.settle()
        queued, self._queued = self._queued, {}
        for progress in queued.values():
            progress.closed = True
            progress.pulse.fire()
