"""Importing modules: an interrupt then finds nothing to end in good order, and there is no garbage.

This module and the package's own import next to nothing, so that the guard stands before
anything takes time.
"""

import gc
import os
import signal
from types import FrameType, TracebackType

_INTERRUPTED = 130


class Starting:
    """Ends the process at once, and quietly, if it is interrupted inside a `with` block.

    An exception would not do: modules written in C, and imports that fall back to something else,
    print it, swallow it or turn it into another one. Where nobody would get an exception anyway,
    because signals are ignored, caught by somebody else or meant for another thread, nothing is
    changed.

    No garbage is looked for meanwhile, and what has been imported is left out of every later
    search: it stays to the end, and going over it again and again takes a twentieth of a start.
    """

    def __init__(self) -> None:
        self._caught = self._collecting = False

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            try:
                signal.signal(signal.SIGINT, _end)
            except ValueError:  # not the main thread, which alone is interrupted
                return
            self._caught = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._collecting:
            gc.freeze()
            gc.enable()
        if self._caught:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)
