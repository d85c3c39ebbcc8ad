"""The deployment of the demos: what is shipped, with the adapter pointed at a scripted model."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dsh.cli._defaults import APP
from dsh.cli._recording import UNRECORDED
from dsh.cli._settings import DEFAULTS_LABEL, default_settings
from dsh.loader import Deployment, read_deployment


def demo_deployment(url: str, *, store: str | None = None) -> Deployment:
    """Return the shipped deployment, its adapter pointed at the scripted model.

    Args:
        url: Where the model is served.
        store: The session store to keep the session in; nothing is kept without one.
    """
    sets = [*UNRECORDED]
    if store is not None:
        sets = [f"seams.session_persistence={store}"]
    return read_deployment(
        defaults=_with_adapter({"base_url": url, "api_key": "none"}, recorded=store is not None),
        defaults_label=DEFAULTS_LABEL,
        app=APP,
        user=False,
        sets=sets,
    )


def _with_adapter(config: dict[str, object], *, recorded: bool) -> dict[str, object]:
    settings = default_settings()
    rows = settings["plugins"]
    assert isinstance(rows, list)  # the file is ours
    plugins: list[object] = [
        {"use": row, "config": config} if row == "llm-deepseek" else row for row in rows
    ]
    if recorded and "record" not in plugins:
        plugins.append("record")
    return {**settings, "plugins": plugins}


@contextmanager
def no_proxy() -> Generator[None]:
    """Keep a proxy of the environment away from the server on this machine."""
    with _environment({"no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1"}):
        yield


@contextmanager
def at_home(folder: Path) -> Generator[None]:
    """Have everything of the user's own in a folder of the demo."""
    with _environment({"DSH_HOME": str(folder)}):
        yield


@contextmanager
def _environment(variables: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
