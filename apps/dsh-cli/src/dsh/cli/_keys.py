"""API keys that `dsh login` keeps: one file per provider, readable by its owner alone."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from dsh.cli.errors import UsageError
from dsh.core import secrets
from dsh.loader import Deployment
from dsh.paths import StateFileError, read_private, user_folder, write_private

_VARIABLE: Final = "DEEPSEEK_API_KEY"
_PROVIDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def key_file(provider: str) -> Path | None:
    """Return where a provider's key is kept; `None` where the user has no home.

    Raises:
        UsageError: That cannot be the name of a provider.
    """
    if not _PROVIDER.fullmatch(provider):
        raise UsageError(f"{provider!r} is no name of a provider", hint="for example: deepseek")
    folder = user_folder()
    return None if folder is None else folder / "keys" / provider


def register_keys() -> None:
    """Register the keys of `dsh login` and of the usual variable, before anything is read."""
    secrets.add(os.environ.get(_VARIABLE, ""))
    for file in _stored_files():
        _register_file(file)


def register_named_keys(deployment: Deployment) -> None:
    """Register the keys that the rows of a deployment name, so that nothing can show one."""
    known = set(_stored_files())
    for row in deployment.rows:
        for name, value in row.config.items():
            if not isinstance(value, str):
                continue
            if name == "api_key_env":
                secrets.add(os.environ.get(value, ""))
            elif name == "api_key":
                secrets.add(value)
            elif name == "key_file" and (file := Path(os.path.expanduser(value))) not in known:
                _register_file(file)


def _register_file(file: Path) -> None:
    # whoever needs this key tells why it cannot be read
    with suppress(StateFileError, OSError, ValueError):
        secrets.add((read_private(file) or b"").decode("utf-8", "replace"))


def _stored_files() -> list[Path]:
    folder = user_folder()
    if folder is None:
        return []
    try:
        return sorted(file for file in (folder / "keys").iterdir() if file.is_file())
    except OSError:
        return []


def store_key(provider: str, key: str) -> Path:
    """Keep a provider's key and return the file.

    Raises:
        StateFileError: The file cannot be written.
    """
    path = key_file(provider)
    if path is None:
        raise StateFileError("there is no home folder to keep keys in", hint="set HOME or DSH_HOME")
    secrets.add(key)
    write_private(path, key.encode() + b"\n")
    return path


def remove_key(provider: str) -> bool:
    """Forget a provider's key; returns whether there was one.

    Raises:
        StateFileError: The file cannot be removed.
    """
    path = key_file(provider)
    if path is None:
        return False
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise StateFileError(f"{path}: cannot be removed: {error.strerror}") from error
    return True
