"""From the options of a command to the deployment it works with."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Final

from dsh.cli._defaults import APP
from dsh.cli._keys import key_file, register_keys, register_named_keys
from dsh.cli._recording import UNRECORDED
from dsh.cli.errors import UsageError
from dsh.core import json as djson
from dsh.core.json import JsonObject
from dsh.loader import Deployment, Layer, LayerKind, mapping_layer, read_deployment

DEFAULTS_LABEL: Final = "dsh-cli defaults"
LOGIN_LABEL: Final = "dsh login"
_PROVIDER: Final = "deepseek"
_ADAPTER: Final = "llm-deepseek"


def default_settings() -> JsonObject:
    """Return the deployment this app ships."""
    text = Path(__file__).with_name("deployment.json").read_bytes()
    value = djson.loads(text)
    assert isinstance(value, dict)  # the file is ours
    return value


def working_folder(named: str | None) -> Path:
    """Return the absolute folder to work in.

    Raises:
        UsageError: It does not exist, is no folder, or may not be entered and read.
    """
    try:
        folder = Path(os.path.abspath(named if named is not None else "."))
    except OSError as error:
        raise UsageError(
            "the current folder does not exist any more", hint="change to another, or use --cwd"
        ) from error
    label = str(folder)
    try:
        if not folder.is_dir():
            gone = "is no folder" if os.path.lexists(folder) else "does not exist"
            raise UsageError(f"working folder {label} {gone}")
        readable = os.access(folder, os.R_OK | os.X_OK)
    except OSError as error:
        raise UsageError(f"working folder {label}: {error.strerror}") from error
    if not readable:
        raise UsageError(f"working folder {label} may not be read", hint="check its permissions")
    return folder


def read_settings(args: argparse.Namespace, folder: Path) -> Deployment:
    """Read every layer that applies to a command, and register the keys it names as secrets.

    Args:
        args: Its options: `config`, `sets` and, where it has one, `ephemeral`.
        folder: The folder it works in.

    Raises:
        DshError: A file or an assignment is wrong; the message says which and where.
    """
    register_keys()
    ephemeral = UNRECORDED if getattr(args, "ephemeral", False) else ()
    deployment = read_deployment(
        defaults=default_settings(),
        defaults_label=DEFAULTS_LABEL,
        base=login_layers(),
        app=APP,
        project=folder,
        config=args.config,
        sets=[*args.sets, *ephemeral],
    )
    register_named_keys(deployment)
    return deployment


def login_layers() -> list[Layer]:
    """Return the layer, just above the defaults, that says where `dsh login` keeps the key."""
    path = key_file(_PROVIDER)
    if path is None:
        return []
    data = {"plugins": [{"id": _ADAPTER, "config": {"key_file": str(path).replace("${", "$${")}}]}
    return [mapping_layer(data, LayerKind.USER, LOGIN_LABEL)]
