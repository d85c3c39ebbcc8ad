"""What the wheels say they offer is what discovery finds, and what it finds is sound."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import textwrap
import tomllib
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from dsh.core import (
    App,
    EntryPoint,
    Plugin,
    Service,
    entry_point_groups,
    entry_points,
    requirements_of,
)
from dsh.loader import LoadedApp, open_app

ROOT = Path(__file__).resolve().parents[1]
STALE = "the installed metadata differs from pyproject.toml; run `uv sync`"


def manifests() -> Iterator[tuple[Path, dict[str, Any]]]:
    found = [*ROOT.glob("packages/*/pyproject.toml"), *ROOT.glob("apps/*/pyproject.toml")]
    for path in sorted(found):
        yield path.parent, tomllib.loads(path.read_text(encoding="utf-8"))["project"]


FOLDERS = {project["name"]: folder for folder, project in manifests()}


def ours(group: str) -> list[EntryPoint]:
    """Return the installed entry points of this workspace's wheels."""
    return [point for point in entry_points(group) if point.dist_name in FOLDERS]


PLUGINS = ours("dsh.plugins")
PROVIDERS = [
    (group.removeprefix("dsh.seam."), point)
    for group in entry_point_groups("dsh.seam.")
    for point in ours(group)
]


def ids(items: list[EntryPoint]) -> Any:
    return pytest.mark.parametrize("point", items, ids=[point.name for point in items])


def test_every_wheel_is_installed_from_this_workspace() -> None:
    for name, folder in FOLDERS.items():
        module = importlib.import_module(f"dsh.{name.removeprefix('dsh-').replace('-', '_')}")
        assert module.__file__ is not None
        assert Path(module.__file__).is_relative_to(folder / "src"), name


def test_installed_entry_points_are_the_declared_ones() -> None:
    for name, project in ((p["name"], p) for _, p in manifests()):
        declared = {
            (group, entry, value)
            for group, entries in project.get("entry-points", {}).items()
            for entry, value in entries.items()
        }
        declared |= {("console_scripts", k, v) for k, v in project.get("scripts", {}).items()}
        found = importlib.metadata.distribution(name).entry_points
        assert {(p.group, p.name, p.value) for p in found} == declared, (name, STALE)


def test_discovery_sees_each_of_them_with_its_wheel() -> None:
    declared = {
        (group, entry, value, project["name"], project["version"])
        for _, project in manifests()
        for group, entries in project.get("entry-points", {}).items()
        if group.startswith("dsh.")
        for entry, value in entries.items()
    }
    found = {
        (group, point.name, point.value, point.dist_name, point.dist_version)
        for group in entry_point_groups("dsh.")
        for point in ours(group)
    }
    assert found == declared, STALE
    assert {"agent-core", "bash-local", "llm-deepseek", "tool-bash"} <= {p.name for p in PLUGINS}


def test_names_are_unique_and_the_groups_are_known() -> None:
    for group in entry_point_groups("dsh."):
        known = ("dsh.plugins", "dsh.bundles", "dsh.defaults", "dsh.commands")
        assert group in known or re.fullmatch(r"dsh\.seam\.[a-z_]+", group), group
        names = [point.name for point in entry_points(group)]
        assert len(names) == len(set(names)), (group, names)


@ids([point for group in entry_point_groups("dsh.") for point in ours(group)])
def test_every_entry_point_loads(point: EntryPoint) -> None:
    module = point.value.partition(":")[0]
    wheel = point.dist_name.removeprefix("dsh-").replace("-", "_")
    assert module.split(".")[:2] == ["dsh", wheel]
    assert point.load() is not None


def test_the_command_and_the_pytest_plugin_load() -> None:
    (script,) = importlib.metadata.distribution("dsh-cli").entry_points.select(
        group="console_scripts"
    )
    assert callable(script.load())
    (plugin,) = importlib.metadata.distribution("dsh-testkit").entry_points.select(group="pytest11")
    assert inspect.ismodule(plugin.load())


@ids(PLUGINS)
def test_a_plugin_has_the_name_of_its_entry_point(point: EntryPoint) -> None:
    plugin = point.load()
    assert isinstance(plugin, type)
    assert issubclass(plugin, Plugin)
    assert not inspect.isabstract(plugin)
    assert plugin.name == point.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", point.name)
    # the front face of the wheel shows it, and it says what it is
    face = importlib.import_module(f"dsh.{plugin.__module__.split('.')[1]}")
    assert plugin.__name__ in face.__all__
    assert plugin.__doc__


@pytest.mark.parametrize("wheel", sorted(set(FOLDERS) - {"dsh-core", "dsh-testkit"}))
def test_every_mountable_plugin_is_an_entry_point(wheel: str) -> None:
    listed = {point.load() for point in PLUGINS}
    module = importlib.import_module(f"dsh.{wheel.removeprefix('dsh-').replace('-', '_')}")
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, type) and issubclass(value, Plugin) and not inspect.isabstract(value):
            assert value in listed or value.__module__.split(".")[1] != module.__name__[4:], value


# -- configurations ------------------------------------------------------------------------------


def config_models(model: Any) -> Iterator[type[BaseModel]]:
    """Yield a model of this workspace and those its fields are made of."""
    pending, seen = [model], set[Any]()
    while pending:
        kind = pending.pop()
        pending += typing.get_args(kind)
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in seen:
            seen.add(kind)
            if kind.__module__.startswith("dsh."):
                yield kind
            pending += [field.annotation for field in kind.model_fields.values()]


def field_texts(model: type[BaseModel]) -> Mapping[str, str]:
    """Return the description of each field: its text, or the string below it in the source."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not (issubclass(base, BaseModel) and base.__module__.startswith("dsh.")):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(node, ast.ClassDef)
        for field, below in zip(node.body, [*node.body[1:], None], strict=True):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = text
                case _:
                    pass
    described = {n: f.description for n, f in model.model_fields.items() if f.description}
    return {**texts, **described}


@ids(PLUGINS)
def test_a_configuration_is_documented(point: EntryPoint) -> None:
    for model in config_models(getattr(point.load(), "Config", None)):
        assert model.__doc__ or any("__doc__" in vars(base) for base in model.__mro__)
        assert model.model_config.get("frozen") is True, model
        assert model.model_config.get("extra") == "forbid", model
        undocumented = set(model.model_fields) - set(field_texts(model))
        assert not undocumented, (model, undocumented)


@ids(PLUGINS)
def test_the_readme_names_every_setting(point: EntryPoint) -> None:
    model: type[BaseModel] | None = getattr(point.load(), "Config", None)
    if model is None:
        return
    readme = (FOLDERS[point.dist_name] / "README.md").read_text(encoding="utf-8")
    missing = [name for name in model.model_fields if not re.search(rf"\b{name}\b", readme)]
    assert not missing, f"{point.dist_name}/README.md says nothing about {missing}"


# -- seams ---------------------------------------------------------------------------------------


def test_every_provider_is_a_plugin_of_the_same_name() -> None:
    plugins = {(point.name, point.value) for point in PLUGINS}
    for key, point in PROVIDERS:
        assert (point.name, point.value) in plugins, (key, point)


@pytest.mark.parametrize(("key", "point"), PROVIDERS, ids=[point.name for _, point in PROVIDERS])
async def test_a_provider_is_an_instance_of_its_seam(key: str, point: EntryPoint) -> None:
    provider = point.load()
    assert issubclass(provider, Service)
    seam = provider.service_type
    assert seam.service_key == key
    assert inspect.isabstract(seam)
    # the interface is another wheel's, and on its front face
    _, owner, _ = seam.__module__.split(".")
    assert owner != provider.__module__.split(".")[1]
    assert seam.__name__ in importlib.import_module(f"dsh.{owner}").__all__
    async with open_app({"plugins": []}, plugins=[provider]) as app:
        assert isinstance(app, App)
        assert isinstance(app[key], provider)
        assert isinstance(app[seam], seam)


def test_defaults_name_installed_providers_and_bundles() -> None:
    for point in ours("dsh.defaults"):
        for key, name in point.load().items():
            group = "dsh.bundles" if key == "bundle" else f"dsh.seam.{key}"
            assert name in {item.name for item in entry_points(group)}, (point, key)


def test_every_bundle_is_a_plugin_of_the_same_name_and_pins_its_parts() -> None:
    plugins = {(point.name, point.value) for point in PLUGINS}
    for point in ours("dsh.bundles"):
        assert (point.name, point.value) in plugins, point
        parts = [item for item in requirements_of(point.dist_name) if item.name.startswith("dsh-")]
        assert parts
        assert all(item.pin is not None and item.met for item in parts), parts


def rows_of(names: set[str]) -> list[Any]:
    configs = {"llm-replay": {"script": ["hello"]}}
    return [{"use": name, "config": configs.get(name, {})} for name in sorted(names)]


NAMES = {point.name for point in PLUGINS}
SPINE = {"agent-loop", "agents", "invariants", "llm", "sessions", "system-prompt", "tools"}
STORES = sorted(point.name for key, point in PROVIDERS if key == "session_persistence")


@pytest.fixture(params=STORES)
def names(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> set[str]:
    """Every plugin, with one of the stores: one app has room for no more."""
    monkeypatch.setenv("DSH_HOME", str(tmp_path))
    return NAMES - set(STORES) | {request.param}


async def test_a_row_names_any_plugin_beside_the_bundle(names: set[str]) -> None:
    async with open_app({"plugins": rows_of(names - SPINE - {"agent-core"})}) as app:
        assert isinstance(app, LoadedApp)
        assert set(app.rows) == names - SPINE
        assert app.explain().inactive == ()


async def test_rows_alone_make_a_spine_without_the_bundle(names: set[str]) -> None:
    rows = rows_of(names - {"agent-core"})
    deployment = {"bundle": None, "model": "replay/scripted", "plugins": rows}
    async with open_app(deployment) as app:
        assert set(app.rows) == names - {"agent-core"}
        assert app.explain().inactive == ()
        async with app.agent() as agent:
            assert (await agent.ask("hi")).text == "hello"
