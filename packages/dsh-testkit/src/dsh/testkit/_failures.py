"""Failures that the kernel contained, made loud again for tests."""

from __future__ import annotations

from dsh.core import App, Failure

__all__ = ["Failures"]


class Failures:
    """What went wrong in an app without reaching anybody.

    A plugin that raises in an observer, in a background task or while it is taken down harms
    nobody else: the kernel logs it and goes on. In a test that would pass unnoticed, so whatever
    is not taken with `take` fails the test at its end.
    """

    def __init__(self) -> None:
        self._seen: list[Failure] = []

    def watch(self, app: App) -> None:
        """Take down every contained failure of an app from now on."""
        app.on_error(app.ctx, self._seen.append)

    @property
    def seen(self) -> tuple[Failure, ...]:
        """The failures that nobody has taken, oldest first."""
        return tuple(self._seen)

    def take(self) -> tuple[Failure, ...]:
        """Return the failures so far and forget them: the test expected them."""
        taken = self.seen
        self._seen.clear()
        return taken

    def check(self) -> None:
        """Fail if there are failures that nobody has taken.

        Raises:
            AssertionError: There are; the message names each, the first one is its cause.
        """
        taken = self.take()
        if taken:
            lines = [
                f"{item.plugin}: {item.where}: {type(item.error).__name__}: {item.error}"
                for item in taken
            ]
            raise AssertionError(
                "failures were contained and nobody took them; a test that expects them calls "
                "`failures.take()`:\n  " + "\n  ".join(lines)
            ) from taken[0].error
