"""What installing and removing other wheels does, with no change anywhere else."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.llm_replay import server as wire
from dsh.llm_replay.server import ThreadedServer

Cli = Any
Serve = Callable[..., ThreadedServer]

PROVIDER = """
from dataclasses import replace
from dsh.bash_local import LocalBash

class {cls}(LocalBash):
    name = "{name}"

    def resolve(self, request):
        return super().resolve(replace(request, env={{**(request.env or {{}}), "WHO": "{name}"}}))
"""

COMMAND = """
def register(commands):
    parser = commands.add_parser("hello", help="say hello")
    parser.add_argument("name")
    parser.set_defaults(run=lambda args: print("hello", args.name, flush=True) or 0)
"""


class Wheels:
    """A folder on the import path that stands for installed wheels."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        known = cli.env.get("PYTHONPATH", "")
        cli.env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), known]))

    def install(self, wheel: str, module: str, source: str, **groups: str) -> None:
        (self.folder / f"{module}.py").write_text(source, encoding="utf-8")
        info = self.folder / f"{wheel.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {wheel}\nVersion: 1.0\n"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        lines = [f"[{group.replace('__', '.')}]\n{entry}\n" for group, entry in groups.items()]
        (info / "entry_points.txt").write_text("".join(lines), encoding="utf-8")

    def install_provider(self, name: str) -> None:
        module, cls = name.replace("-", "_"), name.title().replace("-", "")
        entry = f"{name} = {module}:{cls}"
        source = PROVIDER.format(cls=cls, name=name)
        self.install(f"acme-{name}", module, source, dsh__plugins=entry, dsh__seam__bash=entry)

    def remove(self, wheel: str) -> None:
        info = self.folder / f"{wheel.replace('-', '_')}-1.0.dist-info"
        for file in info.iterdir():
            file.unlink()
        info.rmdir()


@pytest.fixture
def wheels(cli: Cli, tmp_path: Path) -> Wheels:
    return Wheels(cli, tmp_path / "site")


def test_a_second_provider_swaps_the_backend_and_a_third_is_a_question(
    cli: Cli, serve: Serve, wheels: Wheels
) -> None:
    def who() -> str:
        arguments = {"command": "echo who: ${WHO:-local}", "description": "d"}
        serve([wire.tool_call_success("bash", arguments), wire.success("ok")])
        result = cli.run("run", "go")
        assert result.code == 0, result.stderr
        return str(result.stderr.splitlines()[-1].rpartition("who: ")[2])

    assert who() == "local"
    wheels.install_provider("bash-second")
    assert who() == "bash-second"
    assert "nobody's default" in cli.run("doctor").stdout
    wheels.install_provider("bash-third")
    result = cli.run("run", "go")
    assert result.code == 2
    assert "bash-second (from acme-bash-second 1.0)" in result.stderr
    assert "bash-third (from acme-bash-third 1.0)" in result.stderr
    assert "pick one in dsh.yaml: seams: {bash: bash-second}" in result.stderr
    cli.settings("seams: {bash: third}\n")
    assert who() == "bash-third"
    (cli.home / ".dsh" / "dsh.yaml").unlink()
    wheels.remove("acme-bash-third")
    wheels.remove("acme-bash-second")
    assert who() == "local"


def test_a_wheel_can_add_a_command(cli: Cli, wheels: Wheels) -> None:
    wheels.install("acme-hello", "acme_hello", COMMAND, dsh__commands="hello = acme_hello:register")
    result = cli.run("hello", "world")
    assert (result.code, result.stdout, result.stderr) == (0, "hello world\n", "")
    assert "say hello" in cli.run().stdout
    assert "hello" in cli.run("completion", "bash").stdout


def test_a_wheel_with_a_broken_command_is_told_and_harms_no_other(cli: Cli, wheels: Wheels) -> None:
    broken = "raise ImportError('no luck')\n"
    wheels.install("acme-broken", "acme_broken", broken, dsh__commands="b = acme_broken:r")
    wheels.install("acme-hello", "acme_hello", COMMAND, dsh__commands="hello = acme_hello:register")
    result = cli.run("hello", "world")
    assert (result.code, result.stdout) == (0, "hello world\n")
    assert "the command 'b' is not available" in result.stderr
    assert cli.run("--version").code == 0
    assert cli.run("plugins").code == 0


def test_a_wheel_whose_plugin_does_not_import_is_named(
    cli: Cli, serve: Serve, wheels: Wheels
) -> None:
    serve(wire.success("ok"))
    wheels.install(
        "acme-bad", "acme_bad", "import numpy_of_nowhere\n", dsh__plugins="acme-bad = acme_bad:Bad"
    )
    assert cli.run("run", "go").code == 0  # installed, but nobody asked for it
    result = cli.run("run", "--set", "plugins.acme-bad.disabled=false", "go")
    assert result.code == 1
    assert "No module named 'numpy_of_nowhere'" in result.stderr
    assert "acme-bad 1.0" in result.stderr


def test_a_missing_wheel_is_named(cli: Cli, serve: Serve, wheels: Wheels) -> None:
    # an empty record in front hides the real one: discovery takes the first of a name
    serve(wire.success("never"))
    info = wheels.folder / "dsh_tool_bash-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: dsh-tool-bash\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[dsh.nothing]\n", encoding="utf-8")
    result = cli.run("run", "go")
    assert result.code == 2
    assert "the plugin 'tool-bash' is not installed" in result.stderr
    assert "install dsh-tool-bash" in result.stderr
    lines = [json.loads(line) for line in cli.run("plugins", "--json").stdout.splitlines()]
    assert "tool-bash" not in {line["name"] for line in lines}
