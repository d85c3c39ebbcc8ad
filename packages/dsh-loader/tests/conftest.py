"""Folders, variables and installed wheels that belong to one test alone."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dsh.core import EntryPoint, Plugin, PluginConfig, Service, inject, settings
from dsh.core.testing import fake_entry_points

Install = Callable[..., AbstractContextManager[None]]


class Bash(Service, ABC, key="bash"):
    """A seam with one setting that every provider honours."""

    class Config(PluginConfig):
        timeout_ms: int = 1000


class LocalBash(Bash):
    name = "bash-local"

    class Config(Bash.Config):
        drain_ms: int = 200

    config = settings(Config)


class SandboxBash(Bash):
    name = "bash-sandbox"

    class Config(Bash.Config):
        deny_network: bool = True

    config = settings(Config)


class RemoteBash(Bash):
    name = "bash-remote"
    config = settings(Bash.Config)


class StrictBash(Bash):
    name = "bash-strict"

    class Config(Bash.Config):
        folder: str

    config = settings(Config)


class ToolBash(Plugin):
    name = "tool-bash"
    bash = inject(Bash)


class Spine(Plugin):
    """A bundle that notes how it is set up and mounts nothing."""

    class Config(PluginConfig):
        persona: str = ""

    config = settings(Config)


class AgentCore(Spine):
    name = "agent-core"


class AcmeCore(Spine):
    name = "acme-core"


class ZetaCore(Spine):
    name = "zeta-core"


class Nested(PluginConfig):
    depth: int = 1


class Extra(Plugin):
    name = "extra"

    class Config(PluginConfig):
        size: int = 1
        nested: Nested = Nested()

    config = settings(Config)


def point(name: str, target: Any, group: str, wheel: str) -> EntryPoint:
    return EntryPoint(name, f"module:{name}", group, wheel, "1.0", lambda: target)


def bundle(cls: type[Any], wheel: str) -> list[EntryPoint]:
    return [
        point(cls.name, cls, "dsh.plugins", wheel),
        point(cls.name, cls, "dsh.bundles", wheel),
    ]


def provider(cls: type[Any], wheel: str) -> list[EntryPoint]:
    return [
        point(cls.name, cls, "dsh.plugins", wheel),
        point(cls.name, cls, "dsh.seam.bash", wheel),
    ]


LOCAL = provider(LocalBash, "dsh-bash-local")
SANDBOX = provider(SandboxBash, "dsh-bash-sandbox")
REMOTE = provider(RemoteBash, "acme-bash-remote")
TOOLS = [
    point("tool-bash", ToolBash, "dsh.plugins", "dsh-tool-bash"),
    point("extra", Extra, "dsh.plugins", "acme-extra"),
]
APP_DEFAULTS = point(
    "cli", {"bundle": "agent-core", "bash": "bash-local"}, "dsh.defaults", "dsh-cli"
)
WHEELS: dict[str, list[EntryPoint]] = {
    "local": LOCAL,
    "sandbox": SANDBOX,
    "remote": REMOTE,
    "strict": provider(StrictBash, "acme-bash-strict"),
    "tools": TOOLS,
    "app": [APP_DEFAULTS],
    "spine": bundle(AgentCore, "dsh-spine"),
    "acme": bundle(AcmeCore, "acme-spine"),
    "zeta": bundle(ZetaCore, "zeta-spine"),
    "bundle": [point("big", {"bash": "bash-sandbox"}, "dsh.defaults", "dsh-big")],
}


@pytest.fixture
def install() -> Install:
    """Return a context manager in which exactly the named wheels, and more points, are there."""

    def installed(*names: str, points: tuple[EntryPoint, ...] = ()) -> Any:
        known = [p for name in names for p in WHEELS[name]]
        return fake_entry_points(*known, *points)

    return installed


@pytest.fixture
def make_point() -> Callable[[str, Any, str, str], EntryPoint]:
    return point


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the user's own folder; it does not exist yet."""
    folder = tmp_path / "home" / ".dsh"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("DSH_HOME", str(folder))
    for name in ("SECRET_VALUE", "PLAIN", "EMPTY"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder that is the root of a repository."""
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder
