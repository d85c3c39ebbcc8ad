"""Stored sessions for people: keep them, find them, read them, fork them, check them.

`Record` is the plugin that has sessions kept. The rest works on `SessionPersistence` alone, so on
every store: `open_store` opens the one of a deployment, `find_session` and `newest_session` find a
session in it, `fork_session` stores a copy of its beginning. The commands `dsh sessions`,
`dsh replay` and `dsh request` are made of the same. `dsh.sessions.replay` plays a log again
through a whole loop.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dsh.sessions._find import find_session, newest_session, short_id
    from dsh.sessions._open import open_store
    from dsh.sessions._record import Record
    from dsh.sessions._stored_fork import fork_session
    from dsh.sessions._way_out import trouble_of, way_out
    from dsh.sessions.errors import (
        AmbiguousSession,
        SessionChoiceError,
        UnknownSession,
        UnknownTurn,
    )

__all__ = [
    "AmbiguousSession",
    "Record",
    "SessionChoiceError",
    "UnknownSession",
    "UnknownTurn",
    "find_session",
    "fork_session",
    "newest_session",
    "open_store",
    "short_id",
    "trouble_of",
    "way_out",
]

# Loaded on first use: the help of `dsh` imports the commands below this package, and neither it
# nor a run that only records needs the rest.
_HOMES: Final = {
    name: home
    for home, names in {
        "_find": "find_session newest_session short_id",
        "_stored_fork": "fork_session",
        "_open": "open_store",
        "_record": "Record",
        "_way_out": "trouble_of way_out",
        "errors": "AmbiguousSession SessionChoiceError UnknownSession UnknownTurn",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises:
        AttributeError: If the package has no such name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
