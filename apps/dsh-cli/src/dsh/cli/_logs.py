"""What plugins and wheels log, as short lines on stderr; never a traceback, never on stdout."""

from __future__ import annotations

import logging
import os
from types import TracebackType
from typing import Final, Self

from dsh.cli._out import Err, stderr
from dsh.core import install_log_filter

_LOGGER: Final = "dsh"


class Logs(logging.Handler):
    """Shows warnings and worse of the `dsh` loggers while a `with` block runs.

    Records are held back until `open` is called. A start that fails drops them, since the boot
    error says all of it already, and better.
    """

    def __init__(self, err: Err | None = None) -> None:
        super().__init__(logging.WARNING)
        self._err = stderr() if err is None else err
        self._held: list[str] | None = []
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

    def open(self) -> None:
        """Show what was held back, and from now on every record at once."""
        held, self._held = self._held, None
        for line in held or ():
            self._err.line(line)

    def emit(self, record: logging.LogRecord) -> None:
        """Show or hold one record."""
        text = self.format(record) if self._debug else record.getMessage()
        line = f"dsh: {record.levelname.lower()}: {text}"
        if self._held is None:
            self._err.line(line)
        else:
            self._held.append(line)
