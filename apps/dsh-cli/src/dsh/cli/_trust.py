"""`dsh trust`: vouch for a project's file as it is now."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from dsh.cli._exit_codes import ERROR, OK
from dsh.cli._out import Out, stdout
from dsh.cli._settings import working_folder
from dsh.cli._table import table
from dsh.cli.errors import UsageError
from dsh.loader import (
    InterpolationError,
    LayerKind,
    TrustStore,
    file_layer,
    find_project_file,
    read_file,
    untrusted_layer,
)


def command(args: argparse.Namespace) -> int:
    """Trust, revoke or list."""
    store = TrustStore.open()
    out = stdout()
    if args.list:
        if args.path is not None:
            raise UsageError("--list takes no PATH")
        return _list(store, out)
    path = _target(args.path)
    if args.revoke:
        known = store.revoke(path)
        out.line(f"{path} is no longer trusted" if known else f"{path} was not trusted")
        return OK if known else ERROR
    raw = read_file(path)
    if raw is None:
        raise UsageError(f"there is no file {path}")
    with suppress(InterpolationError):  # what it names may be there when it is used
        file_layer(raw, LayerKind.PROJECT)  # a file that cannot be used is not worth trusting
    record = store.trust(path, raw.data)
    out.line(f"{record.path} is trusted as it is now (sha256 {record.digest[:12]})")
    _, opened = untrusted_layer(raw)
    if opened:
        out.line(f"it now takes effect in full: {opened}")
    return OK


def _list(store: TrustStore, out: Out) -> int:
    rows = [
        (_state(store, record.path), _day(record.time), str(record.path))
        for record in store.records()
    ]
    out.line(table(("STATE", "SINCE", "FILE"), rows) if rows else "nothing is trusted")
    return OK


def _state(store: TrustStore, path: Path) -> str:
    raw = read_file(path)
    return "gone" if raw is None else store.state(path, raw.data)


def _day(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, tz=UTC).strftime("%Y-%m-%d")


def _target(named: str | None) -> Path:
    """Return the file that is meant: itself, or the project file of a folder."""
    if named is not None and not os.path.isdir(named):
        return Path(os.path.abspath(named))
    folder = working_folder(named)
    found = find_project_file(folder)
    if found is None:
        raise UsageError(f"there is no dsh.yaml in {folder} or above it in its repository")
    return found
