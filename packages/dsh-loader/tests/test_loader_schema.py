"""The schema of a deployment file says what the loader says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import fields
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr

from dsh.core import Context, DshError, EntryPoint, Plugin, PluginConfig, settings
from dsh.core.json import JsonObject
from dsh.loader import Limits, open_app, parse_yaml
from dsh.loader._shape import LIMITS, ROW_KEYS, TOP_KEYS
from dsh.loader.schema import deployment_schema, settings_schema

Install = Callable[..., AbstractContextManager[None]]
MakePoint = Callable[[str, Any, str, str], EntryPoint]

validators: Any = import_module("jsonschema")


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Server(PluginConfig):
    """A server to ask."""

    host: str
    """Its name."""
    port: int = Field(default=80, gt=0, lt=65536)
    """Its port."""


class Wide(Plugin):
    """Takes settings of every kind.

    More about it.
    """

    name = "wide"

    class Config(PluginConfig):
        """Every kind of setting."""

        url: str
        """Where it is,
        in full."""
        token: SecretStr | None = None
        ratio: float = Field(default=0.5, ge=0, le=1)
        on: bool = False
        level: Literal["low", "high"] = "low"
        colour: Colour = Colour.RED
        code: Annotated[str, Field(pattern="^[a-z]+$", max_length=5)] = "abc"
        where: Path | None = None
        servers: tuple[Server, ...] = ()
        main: Server | None = None
        labels: dict[str, str] = Field(default_factory=dict[str, str])
        extra: dict[str, Any] = Field(default_factory=dict[str, Any])
        tags: list[str] = Field(default_factory=list[str], max_length=2)

    config = settings(Config)


class Small(Plugin):
    """A bundle with one setting."""

    name = "small"

    class Config(PluginConfig):
        persona: str = ""

    config = settings(Config)


async def free(ctx: Context, config: object) -> None:
    """Takes whatever it is given."""


@pytest.fixture
def installed(
    install: Install, make_point: MakePoint, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Two providers of bash, a tool, plugins with settings of every kind, and a bundle."""
    for name, value in {"NUMBER": "7", "FLAG": "yes", "WORD": "low"}.items():
        monkeypatch.setenv(name, value)
    points = (
        make_point("wide", Wide, "dsh.plugins", "acme-wide"),
        make_point("free", free, "dsh.plugins", "acme-free"),
        make_point("small", Small, "dsh.plugins", "acme-small"),
        make_point("small", Small, "dsh.bundles", "acme-small"),
    )
    with install("local", "sandbox", "tools", "app", points=points):
        yield


def yaml(text: str) -> Any:
    return parse_yaml(text, where="test").value


def loads(deployment: JsonObject | None) -> str | None:
    """Start a deployment and return what the loader has against it."""

    async def start() -> None:
        async with open_app({} if deployment is None else deployment):
            pass

    try:
        anyio.run(start)
    except DshError as error:
        return str(error)
    return None


def validates(deployment: object) -> str | None:
    """Return what the schema has against a deployment."""
    errors = validators.Draft202012Validator(deployment_schema()).iter_errors(deployment)
    return next((error.message for error in errors), None)


GOOD = """
version: 1
model: deepseek/deepseek-flash
---
effort: high
model: ${env:MODEL:-a/b}
limits: {max_steps: 50, max_tokens: 8000, max_turn_tokens: 200000, timeout_s: 0.5}
---
bundle: null
agent: {anything: goes}
---
bundle: small
agent: {persona: "${env:WORD}"}
---
agent: {persona: x}
---
bundle: some.module:Bundle
agent: {unknown: true}
---
plugins:
---
plugins: []
---
plugins: [extra, free]
---
plugins: [{use: extra}, {use: extra, id: two, config: {size: 2, nested: {depth: 3}}}]
---
plugins: [{use: extra, config: null}, {id: free, config: {a: {b: [1]}}}]
---
plugins: [{use: not-installed, disabled: true}]
---
plugins: [{use: not-installed, disabled: "true"}, {use: extra, disabled: "${env:UNSET:-false}"}]
---
plugins: [{id: extra, config: {size: "${env:NUMBER}"}}]
---
plugins: [{id: mine, use: "${env:NAME:-extra}"}]
---
plugins: [{use: extra, config: {size: "5", nested: {depth: " 6 "}}}]
---
plugins: [{use: wide, config: {url: x}}]
---
plugins: [{use: wide, config: {url: "$${evn:X} $5 {a} $$ ${env:WORD}$${"}}]
---
plugins:
  - use: wide
    config:
      url: "https://${env:WORD}.example"
      token: "${env:WORD}"
      ratio: "0.25"
      on: "${env:FLAG}"
      level: ${env:WORD}
      colour: blue
      code: ${env:WORD}
      where: /tmp
      servers: [{host: a}, {host: b, port: "${env:NUMBER}"}]
      main: {host: "${env:WORD}"}
      labels: {a: b, c: "${env:WORD}"}
      extra: {a: [1, {b: null}]}
      tags: [a, b]
---
plugins: [{use: wide, config: {url: x, on: yes, ratio: 1, main: null, token: null}}]
---
seams: {bash: local}
bash: {timeout_ms: 7, local: {drain_ms: 3, timeout_ms: 8}, sandbox: {deny_network: false}}
plugins: [tool-bash]
---
seams: {bash: "${env:SHELL_NAME:-bash-sandbox}"}
bash: {bash-sandbox: {deny_network: "${env:FLAG}"}}
plugins: [tool-bash]
---
seams: {bash: local}
bash: {drain_ms: 3}
---
plugins: [{use: bash-local, config: {drain_ms: 4}}, tool-bash]
bash: {timeout_ms: 5}
"""
BAD = """
modle: x
---
$schema: x
---
model: 3
---
model: ""
---
version: 2
---
version: true
---
version: "1"
---
effort: null
---
bundle: [a]
---
bundle: nobody
---
bundle: wide
---
bundle: small
agent: {persona: [x]}
---
bundle: small
agent: {unknown: 1}
---
agent: {unknown: 1}
---
agent: null
---
limits: {max_step: 1}
---
limits: {max_steps: 0}
---
limits: {max_steps: 1.5}
---
limits: {max_steps: "5"}
---
limits: {timeout_s: -1}
---
seams: [bash]
---
seams: {bash: 1}
---
seams: {bash: nobody}
---
seams: {web: x}
---
bash: 1
---
bash: {timeut_ms: 7}
---
bash: {timeout_ms: soon}
seams: {bash: local}
---
bash: {timeout_ms: 1.5}
seams: {bash: local}
---
bash: {local: {drain: 7}}
seams: {bash: local}
---
bash: {local: 3}
seams: {bash: local}
---
plugins: {a: 1}
---
plugins: [3]
---
plugins: [{us: extra}]
---
plugins: [{config: {}}]
---
plugins: [{use: extra, config: 3}]
---
plugins: [{use: extra, disabled: maybe}]
---
plugins: [{use: extra, disabled: []}]
---
plugins: ["a b"]
---
plugins: [extra, extra]
---
plugins: [tool-bahs]
---
plugins: [{use: tool-bahs}]
---
plugins: [{use: "${evn:NAME}", id: x}]
---
plugins: [{use: extra, id: "a b"}]
---
plugins: [{use: extra, config: {sise: 1}}]
---
plugins: [{use: extra, config: {size: big}}]
---
plugins: [{use: extra, config: {size: null}}]
---
plugins: [{use: extra, config: {size: "${evn:NUMBER}"}}]
---
plugins: [{use: wide, config: {url: "a-${evn:NUMBER}"}}]
---
plugins: [{use: wide, config: {url: "${env:NUMBER"}}]
---
plugins: [{use: wide, config: {url: "$${ok} ${file:}"}}]
---
plugins: [{use: extra, config: {nested: {dept: 1}}}]
---
plugins: [{id: extra, config: {nested: 1}}]
---
plugins: [{use: tool-bash, config: {a: 1}}]
seams: {bash: local}
---
plugins: [{use: wide, config: {}}]
---
plugins: [{use: wide, config: {url: x, ratio: 2}}]
---
plugins: [{use: wide, config: {url: x, on: maybe}}]
---
plugins: [{use: wide, config: {url: x, level: middle}}]
---
plugins: [{use: wide, config: {url: x, code: ABC}}]
---
plugins: [{use: wide, config: {url: x, code: abcdef}}]
---
plugins: [{use: wide, config: {url: x, servers: {host: a}}}]
---
plugins: [{use: wide, config: {url: x, servers: [{port: 1}]}}]
---
plugins: [{use: wide, config: {url: x, main: {host: a, port: 65536}}}]
---
plugins: [{use: wide, config: {url: x, labels: {a: 1}}}]
---
plugins: [{use: wide, config: {url: x, tags: [a, b, c]}}]
---
plugins: [{use: wide, config: {url: 3}}]
"""


def documents(text: str) -> list[str]:
    return [part.strip() for part in text.split("\n---\n")]


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", documents(GOOD))
def test_what_the_loader_takes_validates(text: str) -> None:
    deployment = yaml(text)
    if "some.module" not in text:  # it exists for the schema alone
        assert loads(deployment) is None
    assert validates(deployment) is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", documents(BAD))
def test_what_is_wrong_is_refused_by_both(text: str) -> None:
    deployment = yaml(text)
    assert loads(deployment) is not None
    assert validates(deployment) is not None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("file", "good"), [(None, True), ([], False), ("text", False)])
def test_an_empty_file_is_one(file: object, good: bool) -> None:
    assert (validates(file) is None) is good


@pytest.mark.usefixtures("installed")
def test_plugins_may_be_files_and_modules() -> None:
    rows = ["./mine.py", "a.b:C", {"use": "~/x.py", "id": "x"}, {"use": "./m.py:N", "id": "y"}]
    assert validates({"plugins": rows}) is None
    # the name of a row may not begin like that, so these need an id
    assert validates({"plugins": ["~/x.py"]}) is not None
    assert validates({"plugins": [{"use": "/abs/x.py"}]}) is not None


# -- layers ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("installed")
def test_what_another_layer_can_say_may_be_missing() -> None:
    assert validates({"plugins": [{"id": "wide", "config": {"main": {"port": 1}}}]}) is None
    assert validates({"plugins": ["wide"]}) is None
    # lists are replaced whole, and a row that says `use` says its settings
    nameless: dict[str, Any] = {"servers": [{}]}
    assert validates({"plugins": [{"id": "wide", "config": nameless}]}) is not None
    assert validates({"plugins": [{"use": "wide", "config": {"ratio": 1}}]}) is not None


# -- what an editor shows ------------------------------------------------------------------------


def test_texts_under_fields_become_descriptions() -> None:
    schema: Any = settings_schema(Wide)
    assert schema["description"] == "Every kind of setting."
    assert schema["properties"]["url"] == {
        "type": "string",
        "description": "Where it is, in full.",
    }
    assert schema["properties"]["labels"]["default"] == {}
    assert schema["properties"]["tags"]["default"] == []
    assert schema["properties"]["servers"]["items"] == {"$ref": "#/$defs/settings.Server"}
    server = schema["$defs"]["settings.Server"]
    assert server["description"] == "A server to ask."
    assert server["properties"]["port"]["description"] == "Its port."
    assert "title" not in server


def test_inherited_and_local_fields_are_described() -> None:
    class Base(PluginConfig):
        first: int = 1
        """Of the base."""
        second: int = 2
        """Told anew below."""

    class Local(Plugin):
        class Config(Base):
            second: int = 3
            """Of the plugin."""

    schema: Any = settings_schema(Local)
    assert schema["properties"]["first"]["description"] == "Of the base."
    assert schema["properties"]["second"]["description"] == "Of the plugin."


def test_a_class_without_source_has_no_texts() -> None:
    model = type("Config", (PluginConfig,), {"__annotations__": {"a": int}, "a": 1})
    schema: Any = settings_schema(type("Made", (Plugin,), {"Config": model}))
    assert schema["properties"]["a"] == {"type": "integer", "default": 1}


def test_a_type_without_a_schema_takes_anything() -> None:
    class Odd(Plugin):
        class Config(BaseModel):
            hook: Callable[[], int] = int
            size: int = 1

    schema: Any = settings_schema(Odd)
    assert schema["properties"]["size"]["type"] == "integer"
    assert "type" not in schema["properties"]["hook"]


def test_plugins_without_settings(install: Install) -> None:
    class Bare(Plugin): ...

    assert settings_schema(Bare)["additionalProperties"] is False
    assert "additionalProperties" not in settings_schema(free)


@pytest.mark.usefixtures("installed")
def test_plugins_and_providers_are_offered_with_what_they_are() -> None:
    schema: Any = deployment_schema()
    offered = {item["const"]: item["description"] for item in schema["$defs"]["plugin"]["anyOf"]}
    assert offered["wide"] == "Takes settings of every kind. (acme-wide)"
    assert sorted(offered) == sorted(
        ["bash-local", "bash-sandbox", "extra", "free", "small", "tool-bash", "wide"]
    )
    *names, nothing, _ = schema["properties"]["seams"]["properties"]["bash"]["anyOf"]
    assert [item["const"] for item in names] == ["local", "bash-local", "sandbox", "bash-sandbox"]
    assert nothing == {"type": "null"}


@pytest.mark.usefixtures("installed")
def test_settings_of_one_provider_are_advised_against_at_the_top() -> None:
    section: Any = deployment_schema()["properties"]
    section = section["bash"]["properties"]
    assert "deprecated" not in section["timeout_ms"]
    assert section["drain_ms"]["deprecated"] is True
    assert "write it under `local`" in section["drain_ms"]["deprecationMessage"]
    assert section["local"]["$ref"] == section["bash-local"]["$ref"]


@pytest.mark.usefixtures("installed")
def test_the_fixed_keys_are_those_of_the_loader() -> None:
    schema: Any = deployment_schema()
    keys = schema["properties"]
    assert sorted(keys) == sorted([*TOP_KEYS, "bash"])
    assert sorted(keys["limits"]["properties"]) == sorted(LIMITS)
    assert sorted(LIMITS) == sorted(item.name for item in fields(Limits))
    assert sorted(schema["$defs"]["row"]["anyOf"][1]["properties"]) == sorted(ROW_KEYS)
    assert all(item.get("description") for item in keys.values())


@pytest.mark.usefixtures("installed")
def test_the_schema_is_one_and_is_the_same_every_time() -> None:
    schema = deployment_schema()
    validators.Draft202012Validator.check_schema(schema)
    assert schema == deployment_schema()


# -- what is installed ---------------------------------------------------------------------------


def test_a_plugin_that_does_not_import_is_told_and_left_out(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    def explode() -> None:
        raise SystemExit("no licence")

    bad = EntryPoint("bad", "bad:X", "dsh.plugins", "bad-wheel", "1", explode)
    told: list[str] = []
    with install("tools", points=(bad,)):
        schema: Any = deployment_schema(report=told.append)
        deployment_schema()
    assert len(told) == 1
    assert "bad" in told[0]
    assert "no licence" in told[0]
    assert "no licence" in caplog.text
    assert [item["const"] for item in schema["$defs"]["plugin"]["anyOf"]] == ["extra", "tool-bash"]


def test_settings_without_a_schema_cost_their_plugin_alone(
    install: Install, make_point: MakePoint
) -> None:
    # a name that means nothing when the schema is asked for
    model = type("Config", (PluginConfig,), {"__annotations__": {"part": "Nowhere"}})
    unfinished = type("Unfinished", (Plugin,), {"Config": model})
    told: list[str] = []
    with install("tools", points=(make_point("unfinished", unfinished, "dsh.plugins", "w"),)):
        schema: Any = deployment_schema(report=told.append)
    assert [item["const"] for item in schema["$defs"]["plugin"]["anyOf"]] == ["extra", "tool-bash"]
    assert len(told) == 1
    assert "plugin 'unfinished': its settings have no schema" in told[0]


def test_only_the_wheels_that_are_asked_for_count(install: Install) -> None:
    with install("local", "sandbox", "tools"):
        schema: Any = deployment_schema(wheels={"dsh-bash-local"})
    assert [item["const"] for item in schema["$defs"]["plugin"]["anyOf"]] == ["bash-local"]
    assert "sandbox" not in schema["properties"]["bash"]["properties"]


def test_nothing_installed_is_a_schema_too(install: Install) -> None:
    with install():
        assert validates({"version": 1, "plugins": ["./mine.py"]}) is None
        assert validates({"plugins": ["extra"]}) is not None


def test_names_of_plugins_and_of_parts_do_not_meet(install: Install, make_point: MakePoint) -> None:
    """A plugin may be called like a definition of the schema's own."""
    named = [make_point(name, Small, "dsh.plugins", "w") for name in ("row", "plugin", "code")]
    with install(points=tuple(named)):
        good = {"plugins": [{"use": "row", "config": {"persona": "x"}}, "plugin"]}
        assert validates(good) is None
        assert validates({"plugins": [{"use": "row", "config": {"x": 1}}]}) is not None


def test_starting_an_app_never_loads_it() -> None:
    code = (
        "import sys, dsh.loader, anyio\n"
        "async def main():\n"
        "    async with dsh.loader.open_app({'bundle': None}): pass\n"
        "anyio.run(main)\n"
        "print(sorted(m for m in sys.modules if 'schema' in m and m.startswith('dsh.loader')))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# -- both agree ----------------------------------------------------------------------------------

WORDS = st.sampled_from(
    [
        *("soon", "5", " 5 ", "+5", "-5", "5.0", "5.", "5.5", "1_000", "_1", "", "0x10", "1e3"),
        *(".5", "inf", "nan", "true", "TRUE", "yes", "No", "t", "maybe", "2", "low", "high"),
        *("${env:NUMBER}", "${env:FLAG}", "${env:UNSET:-5}", "${evn:X}"),
    ]
)
VALUES = st.one_of(
    WORDS,
    st.integers(-3, 70_000),
    st.sampled_from([0.25, -0.5, 1.5]),
    st.none(),
    st.lists(st.just("a"), max_size=3),
    st.dictionaries(st.sampled_from(["depth", "port", "host", "x"]), WORDS, max_size=2),
)


def one_of_the(*names: str) -> st.SearchStrategy[dict[str, Any]]:
    """A mapping with one doubtful value, so that a difference cannot hide behind another fault."""
    return st.tuples(st.sampled_from(names), VALUES).map(lambda pair: {pair[0]: pair[1]})


EXTRA = one_of_the("size", "nested", "unknown")
WIDE_FIELDS = ("url", "token", "ratio", "on", "level", "colour", "code", "where", "servers", "main")
WIDE = one_of_the(*WIDE_FIELDS, "labels", "tags", "unknown").map(
    lambda config: {"url": "x", **config}
)
ROWS = st.one_of(
    st.sampled_from(["extra", "tool-bash", "nobody", "a b", 3]),
    EXTRA.map(lambda config: {"use": "extra", "config": config}),
    EXTRA.map(lambda config: {"id": "extra", "config": config}),
    WIDE.map(lambda config: {"use": "wide", "config": config}),
    one_of_the("config", "disabled", "unknown").map(lambda row: {"use": "extra", **row}),
    one_of_the("disabled").map(lambda row: {"use": "nobody", **row}),
)
DEPLOYMENTS = st.one_of(
    one_of_the("version", "model", "effort", "limits", "bash", "agent", "plugins", "unknown"),
    one_of_the("max_steps", "timeout_s", "unknown").map(lambda part: {"limits": part}),
    one_of_the("timeout_ms", "drain_ms", "local", "unknown").map(lambda part: {"bash": part}),
    one_of_the("drain_ms", "unknown").map(lambda part: {"bash": {"bash-local": part}}),
    one_of_the("persona", "unknown").map(lambda part: {"agent": part}),
    ROWS.map(lambda row: {"plugins": [row]}),
)


@pytest.mark.usefixtures("installed")
@given(part=DEPLOYMENTS)
@hypothesis_settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_loader_and_schema_agree(part: dict[str, Any]) -> None:
    deployment: dict[str, Any] = {"seams": {"bash": "local"}, **part}
    by_loader, by_schema = loads(deployment), validates(deployment)
    told = (by_loader, by_schema)
    if by_loader is None:
        assert by_schema is None, told
    elif "${env:" not in str(part) and " than " not in by_loader:
        # what a variable holds, and how large a number in a text is, no schema can tell
        assert by_schema is not None, told
