"""Which turn and step are open, and whether an event may stand where it is put."""

from __future__ import annotations

from dsh.session._event import Replace, SurfaceOp
from dsh.session._event_types import (
    AssistantChunk,
    AssistantMessage,
    SteeringMessage,
    StepEnd,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from dsh.session._session_data import SessionData, type_name
from dsh.session.errors import EnclosureError

__all__ = ["Enclosure"]

_StepBound = AssistantChunk | AssistantMessage | ToolCall | ToolResult


class Enclosure:
    """Position in the turn and step structure of a log.

    `advance` follows whatever it is given; `check` says whether an event fits.
    """

    __slots__ = ("last_step", "last_turn", "step", "turn")

    def __init__(self) -> None:
        self.turn: int | None = None
        """Number of the open turn."""
        self.step: int | None = None
        """Number of the open step."""
        self.last_turn = 0
        """Highest turn number so far."""
        self.last_step = 0
        """Highest step number of the open turn."""

    def check(self, data: SessionData, surface: SurfaceOp | None = None) -> None:
        """Raise unless `data` fits where the log stands.

        Raises:
            EnclosureError: Code `NOT_ENCLOSED`, `TURN_MISMATCH` or `STEP_MISMATCH`.
        """
        if isinstance(data, TurnStart):
            self._check_turn_start(data)
            return
        if self.turn is None:
            raise EnclosureError(
                f"{type_name(data)} stands outside of a turn",
                hint="append it while a turn is open, or use agent.record()",
            )
        if isinstance(data, TurnEnd):
            self._need_turn(data, data.turn)
            if self.step is not None:
                raise EnclosureError(
                    f"turn/end of turn {data.turn} while step {self.step} is open",
                    code=EnclosureError.STEP_MISMATCH,
                )
        elif isinstance(data, StepStart):
            self._check_step_start(data)
        elif isinstance(data, ToolResult) and isinstance(surface, Replace):
            return
        elif isinstance(data, StepEnd | _StepBound):
            self._need_turn(data, data.turn)
            self._need_step(data, data.step)
        elif isinstance(data, SteeringMessage):
            self._need_turn(data, data.turn)

    def check_chunk(self, chunk: AssistantChunk) -> None:
        """Do what `check` does, for the one type that comes by the thousand."""
        if chunk.turn != self.turn or chunk.step != self.step:
            self.check(chunk)

    def advance(self, data: SessionData) -> None:
        """Move on over an event of the log."""
        if isinstance(data, TurnStart):
            self.turn = data.turn
            self.last_turn = max(self.last_turn, data.turn)
            self.step = None
            self.last_step = 0
        elif isinstance(data, TurnEnd):
            self.turn = None
            self.step = None
        elif isinstance(data, StepStart):
            self.step = self.last_step = data.step
        elif isinstance(data, StepEnd):
            self.step = None

    def _check_turn_start(self, data: TurnStart) -> None:
        if self.turn is not None:
            raise EnclosureError(
                f"turn/start of turn {data.turn} while turn {self.turn} is open",
                code=EnclosureError.TURN_MISMATCH,
            )
        if data.turn != self.last_turn + 1:
            raise EnclosureError(
                f"turn/start names turn {data.turn}, but the next turn is {self.last_turn + 1}",
                code=EnclosureError.TURN_MISMATCH,
            )

    def _check_step_start(self, data: StepStart) -> None:
        self._need_turn(data, data.turn)
        if self.step is not None:
            raise EnclosureError(
                f"step/start of step {data.step} while step {self.step} is open",
                code=EnclosureError.STEP_MISMATCH,
            )
        if data.step != self.last_step + 1:
            raise EnclosureError(
                f"step/start names step {data.step}, but the next step is {self.last_step + 1}",
                code=EnclosureError.STEP_MISMATCH,
            )

    def _need_turn(self, data: SessionData, turn: int) -> None:
        if turn != self.turn:
            raise EnclosureError(
                f"{type_name(data)} names turn {turn}, but turn {self.turn} is open",
                code=EnclosureError.TURN_MISMATCH,
            )

    def _need_step(self, data: SessionData, step: int) -> None:
        if step != self.step:
            state = "no step is open" if self.step is None else f"step {self.step} is open"
            raise EnclosureError(
                f"{type_name(data)} names step {step}, but {state}",
                code=EnclosureError.STEP_MISMATCH,
            )
