"""Contained failures: one log record each, under the name of the plugin that failed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dsh.core.secrets import SecretsFilter

_filter = SecretsFilter()


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure that was contained instead of reaching the code that caused it."""

    plugin: str
    """Name of the plugin whose code failed."""
    where: str
    """What the code was doing: an event, an effect, a start."""
    error: BaseException
    """What was raised."""


def logger_for(plugin: str) -> logging.Logger:
    """Return the logger `dsh.<plugin>`, with secrets masked.

    Args:
        plugin: Name of the plugin.
    """
    logger = logging.getLogger(f"dsh.{plugin}")
    logger.addFilter(_filter)
    return logger


def log_failure(failure: Failure) -> None:
    """Write the one record of a contained failure."""
    error = failure.error
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - reporting must not fail, whatever was raised
        text = "its message cannot be shown"
    try:
        trace = logging.Formatter().formatException((type(error), error, error.__traceback__))
    except Exception:  # noqa: BLE001 - as above
        trace = ""
    unwritable = _escaped(text + trace) != text + trace
    logger_for(failure.plugin).error(
        "%s: %s: %s: %s",
        failure.plugin,
        failure.where,
        type(error).__name__,
        f"{_escaped(text)}\n{_escaped(trace)}" if unwritable else text,
        exc_info=None if unwritable else error,
    )


def _escaped(text: str) -> str:
    """Return `text` with lone surrogates escaped: a handler would drop the record over them."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def install_log_filter(handler: logging.Handler) -> None:
    """Mask secrets in everything `handler` writes; front doors do this for their handlers."""
    handler.addFilter(_filter)
