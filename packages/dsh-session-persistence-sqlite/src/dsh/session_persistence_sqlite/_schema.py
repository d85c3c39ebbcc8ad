"""The tables, and what a database has to say to be taken for one of ours."""

from __future__ import annotations

import secrets
import sqlite3
from pathlib import Path
from typing import Final

from dsh.session_persistence import FormatUnsupported

__all__ = ["APPLICATION_ID", "SCHEMA_VERSION", "check_schema", "create_schema", "is_empty"]

APPLICATION_ID: Final = 0x64736873
"""`dshs`, in the header of the file; `file` and SQLite show it."""

SCHEMA_VERSION: Final = 1
"""Version of the tables, kept as `user_version`. It is not the version of a session's form."""

_SESSION_ID = "session_id TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE"
_EVENT_COLUMNS = """\
  seq INTEGER NOT NULL,
  type TEXT NOT NULL,
  time INTEGER NOT NULL,
  data TEXT NOT NULL,
  surface_op TEXT,
  source_event_seqs TEXT,
  ignorable INTEGER CHECK (ignorable = 1),
  crc INTEGER NOT NULL,
"""

_TABLES: Final = {
    "persistence_state": """\
CREATE TABLE persistence_state (
  singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
  store_id TEXT NOT NULL
) STRICT""",
    "sessions": """\
CREATE TABLE sessions (
  id TEXT NOT NULL PRIMARY KEY,
  version INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  cwd TEXT,
  parent_session TEXT,
  seed_length INTEGER,
  origin TEXT,
  delegation_depth INTEGER,
  agent_preset TEXT,
  incarnation TEXT NOT NULL,
  header_crc INTEGER NOT NULL,
  revision INTEGER NOT NULL,
  events INTEGER NOT NULL,
  committed INTEGER NOT NULL,
  size INTEGER NOT NULL,
  title TEXT,
  turns INTEGER NOT NULL,
  updated_at INTEGER,
  ended TEXT,
  state_crc INTEGER NOT NULL,
  archived INTEGER NOT NULL DEFAULT 0 CHECK (archived IN (0, 1))
) STRICT, WITHOUT ROWID""",
    "events": f"""\
CREATE TABLE events (
  {_SESSION_ID},
{_EVENT_COLUMNS}  PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID""",
    "cut_events": f"""\
CREATE TABLE cut_events (
  {_SESSION_ID},
  cut INTEGER NOT NULL,
{_EVENT_COLUMNS}  PRIMARY KEY (session_id, cut, seq)
) STRICT, WITHOUT ROWID""",
}
# the columns of a key stand first: `quick_check` of SQLite 3.40 takes others for NULL


def is_empty(connection: sqlite3.Connection) -> bool:
    """Return whether nothing was ever put into a database, by us or by others."""
    return (
        _number(connection, "application_id") == 0
        and _number(connection, "user_version") == 0
        and _objects(connection) == {}
    )


def create_schema(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty database; the caller holds a transaction."""
    for statement in _TABLES.values():
        connection.execute(statement)
    connection.execute("INSERT INTO persistence_state VALUES (1, ?)", (secrets.token_hex(8),))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def check_schema(connection: sqlite3.Connection, file: Path) -> None:
    """Refuse a database that is not ours, of another version, or altered.

    Raises:
        FormatUnsupported: Says what it is and what to do; nothing was changed.
    """
    application = _number(connection, "application_id")
    version = _number(connection, "user_version")
    elsewhere = "name another file for the sessions; this one is left as it is"
    if application != APPLICATION_ID:
        what = f"of application {application:#x}" if application else "of something else"
        raise FormatUnsupported(
            f"this is a database {what}, with no dsh sessions in it",
            hint=elsewhere,
            location=str(file),
        )
    if version != SCHEMA_VERSION:
        newer = version > SCHEMA_VERSION
        raise FormatUnsupported(
            f"this database has tables of version {version}, and this program has version "
            f"{SCHEMA_VERSION}",
            hint="upgrade dsh-session-persistence-sqlite to open it; it is left as it is"
            if newer
            else "open it with the version that wrote it, or " + elsewhere,
            location=str(file),
        )
    found = _objects(connection)
    if found != _TABLES:
        names = sorted(name for name in {*found, *_TABLES} if found.get(name) != _TABLES.get(name))
        raise FormatUnsupported(
            f"the tables of this database were altered: {', '.join(names)}",
            hint="undo that, or restore a copy, or " + elsewhere,
            location=str(file),
        )


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)


def _objects(connection: sqlite3.Connection) -> dict[str, str]:
    """Return name and text of all that was defined; what SQLite keeps for itself left out."""
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
    )
    return {_text(name): _text(sql) for name, sql in rows}


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
