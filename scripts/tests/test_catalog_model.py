"""The catalog's model of small workspaces: what is read, and what is a finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.model import load_workspace
from catalog.shapes import Code, Workspace

Declared = Callable[..., Path]

SWITCHED = '''
@dataclass(frozen=True, slots=True)
class Switched(
    Waterfall[tuple[Power, ...]],
    name="lamp/switched",
    scope="lamp.owner",
    realm=Lamps,
    errors="raise",
):
    """A lamp was switched.

    It may flicker.
    """

    lamp: str
    """Which one."""
    by: str | None = None
    """Who did it."""
'''
POWER = '''
Power: TypeAlias = Literal["on", "off"]
"""Whether there is light."""
'''
LAMPS = '''
class Lamps(Service, ABC, key="lamps"):
    """The lamps of a house."""

    class Config(PluginConfig):
        """What every provider honours."""

        watts: int = 40
        """Power of a lamp, in watts."""
        house: str
        """Name of the house."""

    config = settings(Config)

    @property
    def count(self) -> int:
        """How many there are."""
        return 0

    @abstractmethod
    async def switch(self, name: str, *, power: Power = "on") -> bool:
        """Switch a lamp.

        Args:
            name: Which lamp.
            power: What to switch to.

        Returns:
            Whether it changed: a lamp that is on stays on.

        Raises:
            KeyError: There is no such lamp.
        """

    def _hidden(self) -> None: ...
'''


def load(root: Path) -> Workspace:
    return load_workspace(root)


def messages(workspace: Workspace) -> list[str]:
    return [str(problem) for problem in workspace.problems]


def test_an_event_is_read_whole(declared: Declared) -> None:
    root = declared(POWER + LAMPS + SWITCHED, ["Lamps", "Power", "Switched"])
    workspace = load(root)
    (event,) = workspace.events
    assert (event.name, event.cls, event.path) == (
        "lamp/switched",
        "Switched",
        "dsh.lamp.Switched",
    )
    assert (event.mode, event.result) == ("waterfall", "tuple[Power, ...]")
    assert event.refs == (("Power", "dsh.lamp.Power"),)
    assert (event.scope, event.realm, event.errors) == ("lamp.owner", "lamps", "raise")
    assert event.doc.text == "A lamp was switched.\n\nIt may flicker."
    assert [(f.name, f.type, f.default, f.doc) for f in event.fields] == [
        ("lamp", "str", None, "Which one."),
        ("by", "str | None", "None", "Who did it."),
    ]
    assert event.wheel == "dsh-lamp"
    assert event.source == "packages/dsh-lamp/src/dsh/lamp/_lamp.py"
    assert messages(workspace) == []


@pytest.mark.parametrize(
    ("base", "mode", "result"),
    [
        ("Emit", "emit", None),
        ("Parallel", "parallel", None),
        ("Serial[int]", "serial", "int"),
        ("Waterfall[dict[str, int]]", "waterfall", "dict[str, int]"),
        ("StreamWaterfall[bytes]", "stream", "bytes"),
    ],
)
def test_the_base_is_the_mode(declared: Declared, base: str, mode: str, result: str | None) -> None:
    code = f'@dataclass\nclass Lit({base}, name="lamp/lit"):\n    """There is light."""\n'
    (event,) = load(declared(code, ["Lit"])).events
    assert (event.mode, event.result, event.scope, event.errors) == (mode, result, None, "contain")


def test_an_event_may_derive_from_another(declared: Declared) -> None:
    code = (
        'class About(Emit):\n    """About a lamp."""\n\n    lamp: str\n    """Which."""\n\n\n'
        'class Lit(About, name="lamp/lit"):\n    """Light."""\n'
    )
    (event,) = load(declared(code, ["Lit"])).events
    assert (event.mode, [field.name for field in event.fields]) == ("emit", ["lamp"])


@pytest.mark.parametrize(
    ("code", "exports", "says"),
    [
        ('class Lit(Emit, name="a/lit"): ...', ["Lit"], "event a/lit (Lit) has no docstring"),
        (
            'class Lit(Emit, name="a/lit"):\n    """L."""\n    lamp: str\n',
            ["Lit"],
            "field Lit.lamp of event a/lit has no docstring",
        ),
        (
            'class Lit(Emitt, name="a/lit"):\n    """L."""\n',
            ["Lit"],
            "event a/lit (Lit) derives from Emitt, which leads to none of Emit, Parallel",
        ),
        ('class Lit(Emit, name="a/lit"):\n    """L."""\n', [], "Lit) is in no public module"),
        (
            'class Lit(Emit, name="a/lit", realm=Emit):\n    """L."""\n',
            ["Lit"],
            "realm=Emit of event class Lit declares no key",
        ),
        ('class L(Service, key="l"): ...', ["L"], "service 'l' (L) has no docstring"),
        (
            'class L(Service, key="l"):\n    """L."""\n    def go(self): ...\n',
            ["L"],
            "method L.go of service 'l' has no docstring",
        ),
        (
            'class L(Service, key="l"):\n    """L."""\n    def go(self, a):\n'
            '        """Go.\n\n        Args:\n            b: What.\n        """\n',
            ["L"],
            "L.go documents a parameter 'b' that it has not",
        ),
        (
            'class P(Plugin):\n    """P."""\n    class Config(PluginConfig):\n        """C."""\n'
            "        a: int = 1\n",
            ["P"],
            "dsh.lamp.P.Config.a has no docstring",
        ),
        (
            'class P(Plugin):\n    """P."""\n    l = inject(Emit)\n',
            ["P"],
            "l = inject(Emit) injects a class that declares no service key",
        ),
        ("@dataclass\nclass V: ...\n", ["V"], "class dsh.lamp.V has no docstring"),
        (
            '@dataclass\nclass V:\n    """V."""\n    a: int\n',
            ["V"],
            "dsh.lamp.V.a has no docstring",
        ),
        ("def f() -> None: ...", ["f"], "function dsh.lamp.f has no docstring"),
        ("MODE: TypeAlias = int", ["MODE"], "alias dsh.lamp.MODE has no docstring"),
    ],
)
def test_a_hole_is_a_finding_with_its_file(
    declared: Declared, code: str, exports: list[str], says: str
) -> None:
    found = messages(load(declared(code, exports)))
    assert len(found) == 1
    assert found[0].startswith("packages/dsh-lamp/src/dsh/lamp/_lamp.py: ")
    assert says in found[0]


def test_a_manifest_that_cannot_be_read_is_a_finding(declared: Declared) -> None:
    root = declared("", [])
    (root / "packages/dsh-lamp/pyproject.toml").write_text("[project", encoding="utf-8")
    workspace = load(root)
    assert [wheel.name for wheel in workspace.wheels] == ["dsh-core"]
    assert messages(workspace)[0].startswith("packages/dsh-lamp/pyproject.toml: is no manifest")


def test_a_seam_and_its_provider(declared: Declared) -> None:
    code = (
        POWER
        + LAMPS
        + '''
class Gas(Lamps):
    """Gas lamps."""

    class Config(Lamps.Config):
        """Of gas lamps."""

        watts: int = 10
        """Less light."""
        gas: str = "town"
        """Kind of gas."""

    config = settings(Config)
    other = inject(Meter, optional=True)
    lost = inject(Meter)

    async def switch(self, name: str, *, power: Power = "on") -> bool:
        return False

class Meter(Service, key="meter"):
    """Counts."""

class Blind(Gas):
    """Without one meter."""

    lost = None
'''
    )
    points = {"dsh.plugins": {"gas": "dsh.lamp:Gas"}, "dsh.seam.lamps": {"gas": "dsh.lamp:Gas"}}
    root = declared(code, ["Lamps", "Gas", "Meter", "Blind", "Power"], points)
    workspace = load(root)
    assert messages(workspace) == []
    lamps, meter = workspace.services
    assert (lamps.key, lamps.abstract, meter.abstract) == ("lamps", True, False)
    assert [item.name for item in lamps.methods] == ["switch"]
    assert [(item.name, item.type) for item in lamps.properties] == [("count", "int")]
    switch = lamps.methods[0]
    assert switch.signature == "async switch(name: str, *, power: Power = 'on') -> bool"
    assert switch.abstract
    assert switch.doc.returns == "Whether it changed: a lamp that is on stays on."
    assert [(item.name, item.text) for item in switch.doc.params] == [
        ("name", "Which lamp."),
        ("power", "What to switch to."),
    ]
    assert [item.name for item in switch.doc.raises] == ["KeyError"]
    assert [(one.cls, one.entry_points, one.seam) for one in lamps.providers] == [
        ("Blind", (), False),
        ("Gas", ("gas",), True),
    ]
    plugins = {plugin.cls: plugin for plugin in workspace.plugins}
    assert sorted(plugins) == ["Blind", "Gas", "Meter"]
    gas = plugins["Gas"]
    assert (gas.name, gas.provides, gas.entry_points) == ("gas", "lamps", ("gas",))
    assert [(item.name, item.default, item.doc) for item in gas.config] == [
        ("watts", "10", "Less light."),
        ("house", None, "Name of the house."),
        ("gas", "'town'", "Kind of gas."),
    ]
    assert [(i.attribute, i.key, i.optional) for i in gas.injects] == [
        ("lost", "meter", False),
        ("other", "meter", True),
    ]
    assert [item.attribute for item in plugins["Blind"].injects] == ["other"]


def test_inherited_methods_appear_once_and_listeners_not_at_all(declared: Declared) -> None:
    code = '''
class Lit(Emit, name="a/lit"):
    """Light."""

class Base(ABC):
    @abstractmethod
    def dim(self) -> None:
        """Dim as the base says."""

    def flash(self) -> None:
        """Flash."""

class Lamps(Service, Base, key="lamps"):
    """Lamps."""

    async def start(self) -> None: ...

    def dim(self) -> None: ...

    @on(Lit)
    def seen(self, event: Lit) -> None: ...
'''
    workspace = load(declared(code, ["Lamps", "Lit"]))
    (service,) = workspace.services
    assert [(item.name, item.doc.text) for item in service.methods] == [
        ("dim", "Dim as the base says."),
        ("flash", "Flash."),
    ]
    assert messages(workspace) == []


def test_signatures_say_how_a_function_is_called(declared: Declared) -> None:
    code = '''
class Tool:
    """A tool."""

    def a(self, x: int, /, y: str = "s", *rest: object, z: bool = False, **more: Any) -> None:
        """A."""

    @classmethod
    def b(cls, x: "Tool") -> "Tool":
        """B."""

    @staticmethod
    async def c(x) -> None:
        """C."""

    @overload
    def d(self, x: int) -> int: ...
    @overload
    def d(self, x: str) -> str: ...
    def d(self, x: Any) -> Any:
        """D."""
'''
    (value,) = load(declared(code, ["Tool"])).values
    assert [item.signature for item in value.methods] == [
        "a(x: int, /, y: str = 's', *rest: object, z: bool = False, **more: Any) -> None",
        "classmethod b(x: Tool) -> Tool",
        "staticmethod async c(x) -> None",
        "d(x: Any) -> Any",
    ]
    assert value.methods[3].overloads == ("d(x: int) -> int", "d(x: str) -> str")


def test_values_by_kind(declared: Declared) -> None:
    code = '''
from enum import StrEnum
from pydantic import Field as Bound

Watts = Annotated[int, Bound(gt=0)]

@dataclass(frozen=True)
class Bulb:
    """A bulb."""

    type: ClassVar[str] = "bulb"
    watts: Watts
    """Power."""
    marks: list[str] = field(default_factory=lambda: ["new"])
    """Marks."""
    notes: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """Notes."""

class Colour(StrEnum):
    """A colour."""

    RED = "red"
    """Warm."""

class Broken(LookupError):
    """It is broken.

    Args:
        what: What broke.
    """

    code = "BROKEN"
    WORSE = "WORSE"
    """All is lost."""

    def __init__(self, what: str) -> None:
        self.what = what
        """What broke."""

LIMIT = 3
"""How many."""
Part: TypeAlias = Bulb | int
"""A part."""

class _Hidden:
    def shared(self) -> None:
        """Shared."""

class Shown:
    """Shown."""

    def seen(self) -> None:
        """Seen."""

class Lamp(_Hidden, Shown):
    """A lamp."""
'''
    names = ["Bulb", "Colour", "Broken", "LIMIT", "Part", "Shown", "Lamp"]
    workspace = load(declared(code, names))
    assert messages(workspace) == []
    values = {value.cls: value for value in workspace.values}
    assert {name: value.kind for name, value in values.items()} == {
        "Bulb": "dataclass",
        "Colour": "enum",
        "Broken": "error",
        "LIMIT": "constant",
        "Part": "alias",
        "Shown": "class",
        "Lamp": "class",
    }
    bulb = values["Bulb"]
    assert bulb.tag == "bulb"
    assert [(f.name, f.shown, f.default, f.init) for f in bulb.fields] == [
        ("watts", "int", None, True),
        ("marks", "list[str]", '["new"]'.replace('"', "'"), True),
        ("notes", "dict[str, int]", "dict[str, int]()", False),
    ]
    assert [(f.name, f.default, f.doc) for f in values["Colour"].fields] == [
        ("RED", "'red'", "Warm.")
    ]
    broken = values["Broken"]
    assert broken.codes == (Code("BROKEN", "code"), Code("WORSE", "WORSE", "All is lost."))
    assert broken.constructor is not None
    assert broken.constructor.signature == "Broken(what: str) -> None"
    assert [item.name for item in broken.properties] == ["what"]
    assert values["Part"].refs == (("Bulb", "dsh.lamp.Bulb"),)
    assert [item.name for item in values["Lamp"].methods] == ["shared"]
    assert values["Lamp"].bases == ("dsh.lamp._lamp._Hidden", "dsh.lamp.Shown")


def test_the_public_path_is_the_shortest_of_the_own_wheel(declared: Declared) -> None:
    root = declared('class V:\n    """V."""\n', ["V"])
    package = root / "packages/dsh-lamp/src/dsh/lamp"
    (package / "deep.py").write_text(
        '"""Deep."""\nfrom dsh.lamp._lamp import V\n__all__ = ["V", "W"]\n\n\nclass W:\n'
        '    """W."""\n',
        encoding="utf-8",
    )
    core = root / "packages/dsh-core/src/dsh/core/__init__.py"
    text = core.read_text(encoding="utf-8")
    core.write_text(
        text.replace("__all__: list[str] = []", "from dsh.lamp.deep import W\n__all__ = ['W']"),
        encoding="utf-8",
    )
    assert [value.path for value in load(root).values] == ["dsh.lamp.V", "dsh.lamp.deep.W"]


def test_docstrings_become_markdown(declared: Declared) -> None:
    code = '''
def f(a: int) -> AsyncIterator[int]:
    """Do a thing
    over two lines.

    Like so::

        first = 1

        second = 2

    - one
      goes on
    - two

    Args:
        a: A number, which is
            explained at length.

    Yields:
        What was read: never empty.
    """
'''
    (function,) = load(declared(code, ["f"])).functions
    assert function.doc.text == (
        "Do a thing over two lines.\n\nLike so:\n\n```text\nfirst = 1\n\nsecond = 2\n```\n\n"
        "- one goes on\n- two"
    )
    assert function.doc.summary == "Do a thing over two lines."
    assert function.doc.params[0].text == "A number, which is explained at length."
    assert function.doc.yields == "What was read: never empty."


def test_a_function_listed_as_plugin_is_one(declared: Declared) -> None:
    code = 'async def light_up(ctx, config):\n    """Light up."""\n'
    root = declared(code, ["light_up"], {"dsh.plugins": {"light": "dsh.lamp:light_up"}})
    workspace = load(root)
    assert [function.path for function in workspace.functions] == ["dsh.lamp.light_up"]
    (plugin,) = workspace.plugins
    assert (plugin.name, plugin.entry_points) == ("light-up", ("light",))
