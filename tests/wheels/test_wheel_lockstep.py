"""A wheel in another version than the bundle pins is refused before anything starts."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]
VERSION = "0.1.0"
OTHER = "0.1.1"

OPEN = """
from dsh.loader import PinError, open_app, run_sync


async def main():
    try:
        async with open_app():
            raise SystemExit("it started")
    except PinError as error:
        print(error)


run_sync(main)
"""


@pytest.fixture
def other_tools(tmp_path: Path, build_wheel: Callable[[Path, Path], Path]) -> Path:
    """Return dsh-tools as it is, but for its version."""
    folder = tmp_path / "dsh-tools"
    shutil.copytree(ROOT / "packages" / "dsh-tools", folder)
    manifest = folder / "pyproject.toml"
    text = manifest.read_text(encoding="utf-8")
    changed = text.replace(f'\nversion = "{VERSION}"\n', f'\nversion = "{OTHER}"\n')
    assert changed != text
    manifest.write_text(changed, encoding="utf-8")
    return build_wheel(folder, tmp_path / "other")


def test_a_wheel_of_another_version_is_refused(
    dsh: Any,
    wheels: Any,
    other_tools: Path,
    playing: Callable[..., str],
    uv_pip: Callable[..., str],
) -> None:
    dsh.write_config(playing())
    assert dsh.run("dsh", "run", "go").stdout == "finished\n"

    dsh.install("--no-deps", other_tools)
    assert dsh.installed()["dsh-tools"] == OTHER
    told = f"dsh-agent-core {VERSION} needs dsh-tools {VERSION} ({OTHER} is installed)"
    command = f"pip install dsh-tools=={VERSION}"
    run = dsh.run("dsh", "run", "go")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.splitlines()[0] == f"dsh: {told}"
    assert command in run.stderr
    opened = dsh.script(OPEN)
    assert told in opened
    assert command in opened

    doctor = dsh.run("dsh", "doctor")
    assert doctor.returncode == 1
    for wheel in ("dsh-agent-core", "dsh-agent-loop", "dsh-cli", "dsh-tool-bash"):
        assert f"{wheel} {VERSION} needs dsh-tools {VERSION}" in doctor.stdout
    assert doctor.stdout.count("problem: dsh-agent-core ") == 1

    # what the message says to run, from the wheels instead of an index
    dsh.install("--no-deps", "--no-index", "--find-links", str(wheels.dist), command.split()[-1])
    assert dsh.run("dsh", "run", "go").stdout == "finished\n"
    assert "are compatible" in uv_pip(dsh, "check")


def test_pins_are_the_bundle_s_own(
    dsh: Any, other_tools: Path, project: Callable[..., Path], playing: Callable[..., str]
) -> None:
    """A bundle that pins nothing takes what is there."""
    points = '[project.entry-points."{group}"]\nfree-core = "free_core:Free"\n'
    groups = "\n".join(points.format(group=group) for group in ("dsh.plugins", "dsh.bundles"))
    source = """
from dsh.agent_core import AgentCore


class Free(AgentCore):
    name = "free-core"
"""
    dsh.install(project("free-core", "free_core", source, groups))
    dsh.install("--no-deps", other_tools)
    dsh.write_config(playing())
    assert dsh.run("dsh", "run", "go").stdout == "finished\n"
    refused = dsh.run("dsh", "run", "--set", "bundle=agent-core", "go")
    assert refused.returncode == 2
    assert "dsh-agent-core 0.1.0 needs dsh-tools 0.1.0" in refused.stderr
