"""Making the log durable before something happens that only the log will tell of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from dsh.agent.loopkit._failures import UNKNOWN, leaf_of, text_of_error
from dsh.llm import CancelSignal
from dsh.session import LiveSessions, Session


class Call(Protocol):
    """A tool call whose body has not begun, as `dsh.tools.PendingCall`."""

    @property
    def refused(self) -> bool:
        """Whether its body will not run anyway."""
        ...

    def abandon(self, message: str, code: str, *, notify: bool = True) -> object:
        """Give it an error for its result; its body does not run then."""
        ...


class Checkpoints:
    """Waits until what the log says is durable, before a request is made or a tool begins.

    After a crash the log then tells of everything that had an effect. A checkpoint is left at once
    when the signal fires, so whoever waits looks at the signal again before going on.

    Args:
        sessions: The store that has the session.
        session: The log.
    """

    __slots__ = ("_session", "_sessions")

    def __init__(self, sessions: LiveSessions, session: Session) -> None:
        self._sessions = sessions
        self._session = session

    async def reach(self, signal: CancelSignal) -> None:
        """Wait until everything logged so far is durable, or the signal has fired.

        Args:
            signal: The turn's signal.

        Raises:
            ExceptionGroup: What the stores raised: what was to come must not happen.
        """
        if signal.aborted:
            return
        with signal.cancel_scope():
            await self._sessions.flush(self._session)

    async def before_tools(self, calls: Iterable[Call], signal: CancelSignal) -> None:
        """Wait until the log is durable before bodies begin; once for those that overlap.

        Where it does not get durable no body runs: each call gets an error result with the
        store's code. Calls that are refused have no body and cause no checkpoint.

        Args:
            calls: Calls that are logged and admitted.
            signal: The turn's signal.
        """
        waiting = [call for call in calls if not call.refused]
        if not waiting:
            return
        try:
            await self.reach(signal)
        except Exception as error:  # noqa: BLE001 - it is the result of every call that waits
            leaf = leaf_of(error)
            code = getattr(leaf, "code", None)
            for call in waiting:
                call.abandon(
                    "Error: this call did not run, because the session could not be saved "
                    f"before it: {text_of_error(leaf)}",
                    code if isinstance(code, str) else UNKNOWN,
                    notify=False,
                )
