"""The page of settings, the schema beside it, and the variables that the wheels read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pytest
from pydantic import ConfigDict, Field

from catalog import config_page
from catalog.config_examples import example_settings, yaml_block
from catalog.config_fields import rows_of
from catalog.config_page import render, render_schema
from catalog.live import live_plugins, mounted_by_bundle
from catalog.model import load_workspace
from catalog.shapes import Workspace
from catalog.variables import read_variables
from dsh.core import Plugin, PluginConfig
from dsh.loader import parse_yaml
from dsh.loader.schema import settings_schema

ROOT = Path(__file__).resolve().parents[2]
validators: Any = import_module("jsonschema")


class Tree(Protocol):
    """The fixture of small workspaces."""

    root: Path

    def write(self, path: str, text: str) -> Path: ...
    def folder(self, name: str) -> Path | None: ...


@pytest.fixture(scope="module")
def page(workspace: Workspace) -> str:
    return render(workspace)


# -- fields --------------------------------------------------------------------------------------


class Part(PluginConfig):
    """A part."""

    id: str = Field(min_length=1)
    """Its name."""
    size: int = Field(default=3, gt=0, le=9)
    """Its size."""


class Everything(Plugin):
    class Config(PluginConfig):
        parts: tuple[Part, ...] = ()
        """All parts."""
        main: Part | None = None
        """The main one."""
        by_name: dict[str, Part | str] = Field(default_factory=dict[str, "Part | str"])
        tags: list[str] = Field(default_factory=list[str], min_length=1)
        kind: str = Field(default="a", pattern="^[a|b]$")
        needed: float


def test_fields_are_told_with_path_type_default_and_limits() -> None:
    rows = {row.path: row for row in rows_of(settings_schema(Everything))}
    assert list(rows) == [
        *("parts", "parts[].id", "parts[].size"),
        *("main", "by_name", "tags", "kind", "needed"),
    ]
    size = rows["parts[].size"]
    assert (size.type, size.default, size.limits) == ("integer", "`3`", "> 0; <= 9")
    assert size.doc == "Its size."
    assert rows["parts[].id"].default == "required"
    assert rows["parts[].id"].limits == "at least 1 character"
    assert rows["needed"].type == "number"
    assert rows["needed"].default == "required"
    assert rows["kind"].limits == "matches `^[a|b]$`"
    assert rows["tags"].default == "`[]`"
    assert rows["tags"].limits == "at least 1 item"


def test_a_type_that_occurs_again_refers_to_its_fields() -> None:
    rows = {row.path: row for row in rows_of(settings_schema(Everything))}
    assert rows["parts"].type == "list of mapping"
    assert rows["main"].type == "mapping as in `parts[]` or null"
    assert rows["by_name"].type == "mapping to (mapping as in `parts[]` or string)"


class Node(PluginConfig):
    """A tree."""

    children: tuple[Node, ...] = ()


class Root(Plugin):
    class Config(PluginConfig):
        top: Node = Node()


def test_a_type_that_holds_itself_ends() -> None:
    assert [row.path for row in rows_of(settings_schema(Root))] == ["top", "top.children"]


# -- examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        {"a": 1, "b": {"c": [], "d": {}, "e": "yes"}, "f": [{"g": 1, "h": [True, None]}, "i"]},
        {"version": 1, "text": "a: b # c", "other": "${env:X}", "number": "5", "empty": ""},
        {"rows": [["nested", 1.5], {"k": {"deep": "ü"}}], "a/b": "null"},
    ],
)
def test_examples_are_yaml(data: dict[str, Any]) -> None:
    lines = yaml_block(data).splitlines()
    assert (lines[0], lines[-1]) == ("```yaml", "```")
    assert parse_yaml("\n".join(lines[1:-1]), where="example").value == data


def test_an_example_shows_a_few_plain_fields_or_what_the_model_gives() -> None:
    class Given(PluginConfig):
        model_config = ConfigDict(json_schema_extra={"examples": [{"size": 7}]})
        size: int = 1

    class Named(Plugin):
        Config = Given

    assert example_settings("named", Given, settings_schema(Named)) == {"size": 7}
    schema = settings_schema(Everything)
    with pytest.raises(ValueError, match=r"its Config refuses .*Field required.*json_schema_extra"):
        example_settings("everything", Everything.Config, schema)
    assert example_settings("everything", None, schema) == {"kind": "a"}


def test_every_example_on_the_page_validates(workspace: Workspace, page: str) -> None:
    validator = validators.Draft202012Validator(json.loads(render_schema(workspace)))
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) >= 6
    for block in blocks:
        validator.validate(parse_yaml(block, where="example").value)


# -- the page ------------------------------------------------------------------------------------


def test_every_listed_plugin_and_each_of_its_fields_is_there(
    workspace: Workspace, page: str
) -> None:
    parts = dict(re.findall(r"^### Plugin (\S+)\n(.*?)(?=^##|\Z)", page, re.DOTALL | re.MULTILINE))
    plugins = live_plugins(workspace)
    assert sorted(parts) == [item.name for item in plugins]
    shared = page.partition("### Service bash")[2].partition("## Plugins")[0]
    for item in plugins:
        for field in item.plugin.config:
            where = parts[item.name] if f"`{field.name}`" in parts[item.name] else shared
            assert f"| `{field.name}` |" in where, (item.name, field.name)
            assert field.doc in where, (item.name, field.name)


def test_what_all_providers_share_is_told_once(page: str) -> None:
    assert page.count("| `max_timeout_ms` |") == 1
    assert "under `bash.local`" in page
    assert "    local:" not in page
    assert "\n  local:\n    drain_ms: 200\n" in page


def test_parts_of_a_bundle_say_where_their_settings_stand(workspace: Workspace, page: str) -> None:
    assert "mounts it and passes on what stands under `agent.invariants`." in page
    assert "mounts it and passes on what stands under `agent`." in page
    assert {"SystemPrompt", "ToolRegistry"} <= {
        target.__name__ for target in mounted_by_bundle(workspace)
    }


def test_pages_are_the_same_every_time(workspace: Workspace, page: str) -> None:
    assert render(workspace) == page
    assert render_schema(workspace) == render_schema(workspace)
    assert str(ROOT) not in page + render_schema(workspace)


def test_a_key_of_the_file_that_the_page_leaves_out_is_a_finding(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(vars(config_page)["_FILE"], "effort")
    with pytest.raises(ValueError, match="the schema differ in effort; update _FILE"):
        render(workspace)


def test_a_plugin_that_does_not_import_is_a_finding(tree: Tree) -> None:
    with pytest.raises(ValueError, match=r"dsh\.local_shell:Local cannot be imported"):
        live_plugins(load_workspace(tree.root))


# -- variables -----------------------------------------------------------------------------------

READS = """
import os
from dsh.core import ELSEWHERE

NAME = "DSH_CONSTANT"
SEVERAL = ("DSH_FIRST", NAME)


class Config:
    key_env: str = "DSH_FIELD"


def read(environ, config, name):
    os.environ["DSH_WRITTEN"] = "1"
    return [
        os.environ["DSH_INDEX"],
        os.environ.get("DSH_GET", ""),
        os.getenv("DSH_GETENV"),
        environ.get(NAME),
        environ.get(ELSEWHERE),
        environ.get(config.key_env),
        "DSH_TESTED" in os.environ,
        [environ.get(each) for each in SEVERAL],
        environ.get("dsh_lower"),
    ]
"""
FOUND = {
    *("DSH_CONSTANT", "DSH_FIELD", "DSH_FIRST", "DSH_GET", "DSH_GETENV", "DSH_INDEX"),
    *("DSH_IMPORTED", "DSH_LOWER", "DSH_TESTED"),
}

Reads = Callable[..., Workspace]


@pytest.fixture
def reads(tree: Tree) -> Reads:
    """Return a function that writes a module which reads variables, and what documents them."""

    def write(code: str, readme: str) -> Workspace:
        folder = tree.folder("dsh-shell")
        assert folder is not None
        (folder / "src/dsh/shell/_reads.py").write_text(code, encoding="utf-8")
        (folder / "README.md").write_text(readme, encoding="utf-8")
        kernel = tree.folder("dsh-core")
        assert kernel is not None
        (kernel / "src/dsh/core/names.py").write_text('ELSEWHERE = "DSH_IMPORTED"\n')
        return load_workspace(tree.root)

    return write


def texts(*names: str) -> Mapping[str, str]:
    return dict.fromkeys(names, "What it does.")


def test_every_way_of_reading_a_variable_is_found(reads: Reads) -> None:
    workspace = reads(READS, " ".join(FOUND))
    found = read_variables(workspace, texts(*FOUND), {})
    assert {item.name for item in found} == FOUND
    assert {item.wheels for item in found} == {("dsh-shell",)}


def test_undescribed_and_unread_variables_are_findings(reads: Reads) -> None:
    workspace = reads('import os\nos.getenv("DSH_A")\n', "nothing")
    with pytest.raises(ValueError, match="DSH_A: read by dsh-shell and not in VARIABLES"):
        read_variables(workspace, {}, {})
    with pytest.raises(ValueError, match="DSH_A: the README of dsh-shell, which reads it, is"):
        read_variables(workspace, texts("DSH_A"), {})
    with pytest.raises(ValueError, match="DSH_B: read by no wheel"):
        read_variables(workspace, texts("DSH_A", "DSH_B"), {})


def test_names_that_are_worked_out_have_to_be_listed(reads: Reads) -> None:
    workspace = reads("import os\n\n\ndef f(name):\n    return os.getenv(name)\n", "DSH_A")
    file = "packages/dsh-shell/src/dsh/shell/_reads.py"
    with pytest.raises(ValueError, match=rf"{file}: reads a variable, and which"):
        read_variables(workspace, {}, {})
    (found,) = read_variables(workspace, texts("DSH_A"), {file: ("DSH_A",)})
    assert found.wheels == ("dsh-shell",)
    plain = reads('import os\nos.getenv("DSH_A")\n', "DSH_A")
    with pytest.raises(ValueError, match="every variable it reads is plain"):
        read_variables(plain, texts("DSH_A"), {file: ("DSH_A",)})
