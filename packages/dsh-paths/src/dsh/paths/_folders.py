"""Where a person's files are kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

__all__ = ["state_folder", "user_folder"]


def user_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the user's own folder: `DSH_HOME`, or `~/.dsh`; `None` where no home is known.

    The folder may not exist; nothing is created.

    Args:
        environ: The environment to read, this process's if it is left out.
    """
    environ = os.environ if environ is None else environ
    named = environ.get("DSH_HOME")
    if named:
        return Path(os.path.abspath(os.path.expanduser(named)))
    home = _home(environ)
    return None if home is None else home / ".dsh"


def state_folder(environ: Mapping[str, str] | None = None) -> Path | None:
    r"""Return the folder of what dsh remembers: `$DSH_HOME/state`, or the platform's state folder.

    That is `$XDG_STATE_HOME/dsh`, or without that variable `~/.local/state/dsh`, on macOS
    `~/Library/Application Support/dsh`; on Windows it is `%LOCALAPPDATA%\dsh`. It is `None` where
    no home is known. The folder may not exist; nothing is created.

    Args:
        environ: The environment to read, this process's if it is left out.
    """
    environ = os.environ if environ is None else environ
    if environ.get("DSH_HOME"):
        folder = user_folder(environ)
        return None if folder is None else folder / "state"
    home = _home(environ)
    if home is None:
        return None
    # what platformdirs says, which can only be asked about the environment of this process
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "dsh"
    named = environ.get("XDG_STATE_HOME", "").strip()
    if os.path.isabs(named):  # the XDG specification has programs ignore a relative path
        return Path(named, "dsh")
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "dsh"
    return home / ".local" / "state" / "dsh"


def _home(environ: Mapping[str, str]) -> Path | None:
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(home) if os.path.isabs(home) else None
