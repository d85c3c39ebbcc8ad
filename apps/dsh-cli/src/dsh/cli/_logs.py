"""What plugins and wheels log, as short lines on stderr; never a traceback, never on stdout."""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import Final, Self, cast

from dsh.cli._out import Err, stderr
from dsh.core import install_log_filter

_LOGGER: Final = "dsh"


class Logs(logging.Handler):
    """Shows warnings and worse of the `dsh` loggers while a `with` block runs.

    Records are held back until `open` is called. A start that fails drops them, since the boot
    error says all of it already, and better.

    What only says that the session store failed is held back longer, to the end of the block or
    `show_trouble`: such a failure ends the run, whose last message tells of it, and every part
    that meets it logs it again.
    """

    def __init__(self, err: Err | None = None) -> None:
        super().__init__(logging.WARNING)
        self._err = stderr() if err is None else err
        self._held: list[str] | None = []
        self._trouble: list[tuple[str, list[str]]] = []
        self._propagated = True
        self._debug = bool(os.environ.get("DSH_DEBUG"))
        install_log_filter(self)

    def __enter__(self) -> Self:
        logger = logging.getLogger(_LOGGER)
        self._propagated, logger.propagate = logger.propagate, False
        logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(self)
        logger.propagate = self._propagated
        self.show_trouble()

    def open(self) -> None:
        """Show what was held back, and from now on every record at once."""
        held, self._held = self._held, None
        for line in held or ():
            self._err.line(line)

    def show_trouble(self, told: str | None = None) -> None:
        """Show what was logged about a store that failed.

        Args:
            told: What the person is told anyway; a line that says no more than this is left out.
        """
        trouble, self._trouble = self._trouble, []
        for line, causes in trouble:
            if told is None or not all(cause in told for cause in causes):
                self._err.line(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Show or hold one record."""
        text = self.format(record) if self._debug else record.getMessage()
        line = f"dsh: {record.levelname.lower()}: {text}"
        causes = [] if self._held is not None or self._debug else _store_failures(record)
        if causes:
            self._trouble.append((line, causes))
        elif self._held is None:
            self._err.line(line)
        else:
            self._held.append(line)


def _store_failures(record: logging.LogRecord) -> list[str]:
    """Return what a session store said was wrong, if that is all a record is about."""
    from dsh.session_persistence import PersistenceError

    told = record.args if isinstance(record.args, tuple) else ()
    raised = record.exc_info[1] if record.exc_info else None
    errors = [item for item in (raised, *told) if isinstance(item, BaseException)]
    leaves = [leaf for error in errors for leaf in _leaves(error)]
    if not all(isinstance(leaf, PersistenceError) for leaf in leaves):
        return []
    return [leaf.message for leaf in leaves if isinstance(leaf, PersistenceError)]


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for member in group.exceptions for leaf in _leaves(member)]
