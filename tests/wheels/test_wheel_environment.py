"""A whole environment: what a person gets, how large it is, and that it survives changes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

MOST_MEGABYTES = 30
MOST_FOREIGN = 25

COUNT = """
import importlib.metadata as m, json, os
size = foreign = 0
for dist in m.distributions():
    name = dist.metadata["Name"]
    if name in ("pip", "setuptools"):
        continue
    foreign += not name.startswith("dsh-")
    for file in dist.files or ():
        path = dist.locate_file(file)
        if os.path.exists(path) and not str(path).endswith(".pyc"):
            size += os.path.getsize(path)
print(json.dumps({"foreign": foreign, "megabytes": round(size / 1e6, 1)}))
"""

PORTIONS = """
import importlib, pkgutil, dsh
for item in pkgutil.iter_modules(dsh.__path__):
    importlib.import_module("dsh." + item.name)
    print(item.name)
"""


def test_an_empty_environment_gets_a_working_dsh(dsh: Any) -> None:
    version = dsh.run("dsh", "--version")
    assert re.search(r"\d+\.\d+\.\d+", version.stdout)
    demo = dsh.run("dsh", "demo")
    assert demo.returncode == 0, demo.stderr
    assert "scripted" in demo.stdout + demo.stderr
    doctor = dsh.run("dsh", "doctor")
    assert "bash-local" in doctor.stdout + doctor.stderr
    facts = json.loads(dsh.script(COUNT))
    assert facts["foreign"] <= MOST_FOREIGN, facts
    assert facts["megabytes"] <= MOST_MEGABYTES, facts


def test_every_wheel_together_has_what_it_requires(
    environment: Any, wheels: Any, uv_pip: Callable[..., str]
) -> None:
    environment.install(*wheels.by_name.values())
    assert {n for n in environment.installed() if n.startswith("dsh-")} == set(wheels.by_name)
    assert "All installed packages are compatible" in uv_pip(environment, "check")
    report = json.loads(environment.run("dsh", "doctor", "--json").stdout)
    assert not [item for item in report["problems"] if "KEY" not in item["text"]]
    assert report["notes"] == []


def test_wheels_can_be_installed_again_and_removed_one_by_one(dsh: Any, wheels: Any) -> None:
    portions = dsh.script(PORTIONS).split()
    assert len(portions) == len(wheels.closure_names("dsh-cli"))
    dsh.install("--reinstall", *wheels.closure("dsh-cli"))
    assert dsh.script(PORTIONS).split() == portions
    assert dsh.run("dsh", "demo").returncode == 0
    dsh.uninstall("dsh-bash-local")
    assert dsh.script(PORTIONS).split() == [name for name in portions if name != "bash_local"]
    doctor = dsh.run("dsh", "doctor")
    assert doctor.returncode == 1
    assert "install dsh-bash-local" in doctor.stdout
    assert "note: dsh-cli requires dsh-bash-local 0.1.0" in doctor.stdout
    dsh.install(wheels.by_name["dsh-bash-local"])
    assert dsh.run("dsh", "demo").returncode == 0


@pytest.mark.needs_program("pip")
def test_pip_does_the_same(dsh: Any, wheels: Any) -> None:
    program = str(shutil.which("pip"))  # any will do: `--python` makes it run over there

    def pip(*arguments: str) -> str:
        done = dsh.run(program, "--python", str(dsh.python), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    quiet = ("--quiet", "--no-input", "--disable-pip-version-check")
    assert "No broken requirements" in pip("check")
    portions = dsh.script(PORTIONS).split()
    again = [str(path) for path in wheels.closure("dsh-bash-local", "dsh-tool-bash")]
    pip("install", *quiet, "--no-index", "--no-deps", "--force-reinstall", *again)
    assert dsh.script(PORTIONS).split() == portions
    pip("uninstall", *quiet, "--yes", "dsh-bash-local", "dsh-process")
    left = [name for name in portions if name not in {"bash_local", "process"}]
    assert dsh.script(PORTIONS).split() == left
