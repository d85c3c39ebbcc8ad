"""`dsh config schema`: what an editor is told about dsh.yaml."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pytest

validators: Any = import_module("jsonschema")

SHOUT = '''
print("loading shout")

from dsh.core import Plugin, PluginConfig, settings


class Shout(Plugin):
    """Says everything louder."""

    class Config(PluginConfig):
        volume: int
        """How loud, from 1 to 11."""

    config = settings(Config)
'''


class Result(Protocol):
    code: int
    stdout: str
    stderr: str


class Cli(Protocol):
    """The fixture that runs the command."""

    env: dict[str, str]

    def run(self, *arguments: str) -> Result: ...


Wheel = Callable[[str, str, str], None]


@pytest.fixture
def wheel(cli: Cli, tmp_path: Path) -> Wheel:
    """Return a function that installs a wheel with one plugin beside the command."""
    site = tmp_path / "site"
    site.mkdir()
    cli.env["PYTHONPATH"] = str(site)

    def install(name: str, code: str, attribute: str) -> None:
        module = name.replace("-", "_")
        (site / f"{module}.py").write_text(code, encoding="utf-8")
        info = site / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[dsh.plugins]\n{name} = {module}:{attribute}\n")

    return install


def test_the_schema_is_json_and_knows_what_is_installed(cli: Cli) -> None:
    result = cli.run("config", "schema")
    assert (result.code, result.stderr) == (0, "")
    schema: Any = json.loads(result.stdout)
    validator = validators.Draft202012Validator(schema)
    validator.check_schema(schema)
    assert validator.is_valid({"plugins": ["tool-bash"], "agent": {"persona": "Be brief."}})
    assert not validator.is_valid({"plugins": ["tool-bahs"]})
    assert not validator.is_valid({"agent": {"persna": "Be brief."}})
    assert cli.run("config", "schema").stdout == result.stdout


def test_a_plugin_of_ones_own_shows_up_by_itself(cli: Cli, wheel: Wheel) -> None:
    wheel("shout", SHOUT, "Shout")
    result = cli.run("config", "schema")
    assert result.code == 0
    schema: Any = json.loads(result.stdout)  # what the module printed is not in it
    assert "loading shout" in result.stderr
    field = schema["$defs"]["settings.shout"]["properties"]["volume"]
    assert field["description"] == "How loud, from 1 to 11."
    validator = validators.Draft202012Validator(schema)
    assert validator.is_valid({"plugins": [{"use": "shout", "config": {"volume": 3}}]})
    assert not validator.is_valid({"plugins": [{"use": "shout", "config": {"volume": "loud"}}]})


def test_a_plugin_that_does_not_import_is_named_and_left_out(cli: Cli, wheel: Wheel) -> None:
    wheel("broken", "import no_such_module\n", "Broken")
    result = cli.run("config", "schema")
    assert result.code == 0
    assert "left out: " in result.stderr
    assert "'broken'" in result.stderr
    assert "no_such_module" in result.stderr
    names = [item["const"] for item in json.loads(result.stdout)["$defs"]["plugin"]["anyOf"]]
    assert "broken" not in names
    assert "tool-bash" in names


def test_the_help_says_how_an_editor_finds_it(cli: Cli) -> None:
    result = cli.run("config", "schema", "--help")
    assert result.code == 0
    assert "# yaml-language-server: $schema=" in result.stdout


def test_it_needs_no_settings_that_work(cli: Cli) -> None:
    home = Path(cli.env["HOME"]) / ".dsh"
    home.mkdir()
    (home / "dsh.yaml").write_text("model: [\n", encoding="utf-8")
    assert cli.run("config", "schema").code == 0
