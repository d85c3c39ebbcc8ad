"""Each wheel alone: what it declares is all it needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.wheels

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(p.parent.name for d in ("packages", "apps") for p in ROOT.glob(f"{d}/*/src"))

LOOK = """
import importlib, importlib.metadata, json, pkgutil, sys

name = sys.argv[1]
face = importlib.import_module("dsh." + name.removeprefix("dsh-").replace("-", "_"))
for listed in face.__all__:
    getattr(face, listed)
modules = [m.name for m in pkgutil.walk_packages(face.__path__, face.__name__ + ".")]
for module in modules:
    if not module.endswith(".__main__"):
        importlib.import_module(module)
points = importlib.metadata.distribution(name).entry_points
for point in points:
    point.load()

import dsh
assert getattr(dsh, "__file__", None) is None, "the namespace has a file of its own"
print(json.dumps({
    "portions": sorted(item.name for item in pkgutil.iter_modules(dsh.__path__)),
    "modules": len(modules),
    "points": len(points),
}))
"""


@pytest.mark.parametrize("name", NAMES)
def test_a_wheel_works_with_what_it_declares(name: str, environment: Any, wheels: Any) -> None:
    closure = wheels.closure_names(name)
    environment.install(*wheels.closure(name))
    ours = {found for found in environment.installed() if found.startswith("dsh-")}
    assert ours == set(closure)
    facts = json.loads(environment.script(LOOK, name))
    assert facts["portions"] == sorted(n.removeprefix("dsh-").replace("-", "_") for n in closure)
    assert facts["modules"] > 0


SPINE = """
import anyio
from dsh.agent_core import AgentCore, create_agent
from dsh.core import App
from dsh.llm import LlmService
from dsh.llm_replay import ScriptedAdapter, text


async def main():
    async with App() as app:
        await app.mount(AgentCore).settled()
        app[LlmService].register(app.ctx, ScriptedAdapter([text("mounted")]), "test")
        async with create_agent(app, model="test/scripted") as agent:
            print((await agent.ask("hi")).text)


anyio.run(main)
"""

LOADER = """
from dsh.loader import open_app, run_sync


async def main():
    row = {"use": "llm-replay", "config": {"script": ["loaded"]}}
    async with open_app({"model": "replay/scripted", "plugins": [row]}) as app:
        assert app.bundle.reason == "only-extra", app.bundle
        async with app.agent() as agent:
            print((await agent.ask("hi")).text)


run_sync(main)
"""


def test_the_bundle_is_all_an_embedder_needs_to_run_an_agent(environment: Any, wheels: Any) -> None:
    environment.install(*wheels.closure("dsh-agent-core", "dsh-llm-replay"))
    assert "dsh-loader" not in environment.installed()
    assert environment.script(SPINE) == "mounted\n"
    environment.install(*wheels.closure("dsh-loader"))
    assert environment.script(LOADER) == "loaded\n"
