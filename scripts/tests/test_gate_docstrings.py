"""`check_docstrings.py` lets a documented API pass and names each way to fall short of that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import griffe
import pytest

from check_docstrings import check
from public_api.docs import parse

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_docstrings.py"
NEW = "packages/dsh-new/src/dsh/new/__init__.py"

SOURCES = {
    "dsh-core/src/dsh/core/__init__.py": '''"""The kernel."""

from dsh.core._events import Emit
from dsh.core._plugins import Plugin, Service
from dsh.core.errors import DshError

__all__ = ["DshError", "Emit", "Plugin", "Service"]
''',
    "dsh-core/src/dsh/core/_events.py": '''"""Events."""


class Event:
    """An event."""


class Emit(Event):
    """Told."""
''',
    "dsh-core/src/dsh/core/_plugins.py": '''"""Plugins."""


class Plugin:
    """A plugin."""

    name: str
    """Its name."""

    async def start(self) -> None:
        """Begin."""


class Service(Plugin):
    """A service."""
''',
    "dsh-core/src/dsh/core/errors.py": '''"""Errors."""


class DshError(Exception):
    """An error."""

    code: str = "ERROR"
''',
    "dsh-session/src/dsh/session/__init__.py": '''"""Sessions."""

from dsh.session._session_data import SessionData

__all__ = ["SessionData"]
''',
    "dsh-session/src/dsh/session/_session_data.py": '''"""Payloads."""


class SessionData:
    """A payload."""
''',
}

HEAD = '''"""A new wheel."""

from dataclasses import dataclass

from dsh.core import DshError, Emit, Plugin, Service
from dsh.session import SessionData

'''


class Wheel:
    """A workspace with a small kernel and one wheel, whose text a test gives."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for path, text in SOURCES.items():
            self.write(f"packages/{path}", text)

    def write(self, path: str, text: str) -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def findings(self, code: str, public: str = "X") -> list[str]:
        """Return what is found in the wheel, without the place."""
        self.write(NEW, f"{HEAD}__all__ = {public.split()}\n\n{code}\n")
        return [finding.partition(": ")[2] for finding in check(self.root)]


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path)


def test_the_command_names_file_and_line_and_fails(wheel: Any) -> None:
    def run() -> tuple[int, str]:
        command = [sys.executable, str(SCRIPT), str(wheel.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert wheel.findings('class X:\n    """An X."""') == []
    assert run() == (0, "docstrings: 0 findings\n")
    wheel.findings("class X:\n    pass")
    assert run() == (1, f"{NEW}:10: dsh.new.X has no docstring\ndocstrings: 1 findings\n")


# -- there is a docstring ------------------------------------------------------------------------


PRIVATE = '''
class _Base:
    """A base."""

    def run(self) -> None:{run}

    def walk(self) -> None:
        """Walk."""


class Shown:
    """A base that is public."""

    def told(self) -> None: ...


class X(_Base{more}):
    """An X."""

    def walk(self) -> None: ...
'''


def test_what_comes_from_a_private_base_is_documented_there(wheel: Any) -> None:
    """What a public base brings along is a finding of that base alone."""
    silent = PRIVATE.format(run=" ...", more="")
    assert wheel.findings(silent) == ["dsh.new.X.run has no docstring"]
    assert wheel.findings(PRIVATE.format(run='\n        """Run."""', more="")) == []
    both = PRIVATE.format(run='\n        """Run."""', more=", Shown")
    assert wheel.findings(both, "Shown X") == ["dsh.new.Shown.told has no docstring"]


def test_an_override_of_what_a_private_base_lacks(wheel: Any) -> None:
    code = PRIVATE.format(run=" ...", more="")
    code += '\n    def run(self) -> None:\n        """Run."""\n'
    assert wheel.findings(code) == []


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("def X() -> None: ...", "dsh.new.X"),
        ('class X:\n    """An X."""\n\n    def run(self) -> None: ...', "dsh.new.X.run"),
        ('class X:\n    """An X."""\n\n    class Y:\n        pass', "dsh.new.X.Y"),
    ],
)
def test_no_docstring(wheel: Any, code: str, name: str) -> None:
    assert wheel.findings(code) == [f"{name} has no docstring"]


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("X = 3", "dsh.new.X"),
        (
            'class X:\n    """An X."""\n\n    @property\n    def size(self) -> int: ...',
            "dsh.new.X.size",
        ),
        ('@dataclass\nclass X:\n    """An X."""\n\n    size: int', "dsh.new.X.size"),
        (
            '@dataclass\nclass X(Emit, name="a/b"):\n    """An X."""\n\n    size: int',
            "dsh.new.X.size",
        ),
        (
            '@dataclass\nclass X(SessionData, type="a/b"):\n    """An X."""\n\n    size: int = 3',
            "dsh.new.X.size",
        ),
        (
            'class X(DshError):\n    """An X."""\n\n    A = "A"\n    """An A."""\n    B = "B"',
            "dsh.new.X.B",
        ),
    ],
)
def test_no_text_below(wheel: Any, code: str, name: str) -> None:
    assert wheel.findings(code) == [f"{name} has no docstring; put one below it"]


@pytest.mark.parametrize(
    "code",
    [
        "class _Y:\n    pass\n\n\nclass X(_Y):\n    '''An X.'''\n\n    def _run(self): ...",
        "class X(Plugin):\n    '''An X.'''\n\n    name = 'x'\n\n    async def start(self): ...",
        "class X:\n    '''An X.'''\n\n    def test_that_it_holds(self): ...",
        "@dataclass\nclass X:\n    '''An X.\n\n    Args:\n        size: Its size.\n    '''\n\n"
        "    size: int",
        "@dataclass\nclass X:\n    '''An X.'''\n\n    kind: ClassVar[str] = 'x'",
        "class X(DshError):\n    '''An X.'''\n\n    A = 'A'",
    ],
)
def test_what_needs_no_docstring(wheel: Any, code: str) -> None:
    assert wheel.findings(f"from typing import ClassVar\n\n\n{code}") == []


@pytest.mark.parametrize("path", ["errors.py", "events/__init__.py"])
def test_a_module_without_docstring(wheel: Any, path: str) -> None:
    wheel.write(f"packages/dsh-new/src/dsh/new/{path}", "")
    name = path.removesuffix(".py").removesuffix("/__init__")
    assert wheel.findings("", "") == [f"dsh.new.{name} has no docstring"]


@pytest.mark.parametrize(
    ("code", "sound"),
    [
        ("", False),
        ("from dsh.core import X", False),
        ("from dsh.core._gone import X", False),
        ("from anyio import X", True),
        ("def __getattr__(name: str) -> object: ...", True),
    ],
)
def test_a_public_name_without_anything_behind_it(wheel: Any, code: str, sound: bool) -> None:
    told = "dsh.new lists X, which does not exist"
    assert wheel.findings(code) == ([] if sound else [told])


def test_what_a_submodule_defines_is_public(wheel: Any) -> None:
    text = '"""Events."""\n\nfrom dsh.core import Emit\n\n\nclass A(Emit, name="a/b"): ...\n'
    wheel.write("packages/dsh-new/src/dsh/new/events.py", text)
    assert wheel.findings("", "") == ["dsh.new.events.A has no docstring"]


# -- it fits the code ----------------------------------------------------------------------------


def function(doc: str, signature: str = "a: int, *b: int, c: int = 3, **d: int") -> str:
    lines = "\n".join(f"    {line}".rstrip() for line in doc.splitlines())
    return f'def X({signature}) -> None:\n    """{lines.strip()}\n    """'


def method(doc: str, signature: str, body: str = "...", base: str = "Service") -> str:
    lines = "\n".join(f"        {line}".rstrip() for line in doc.splitlines()).strip()
    keyword = ', key="x"' if base == "Service" else ""
    return (
        f'class X({base}{keyword}):\n    """An X."""\n\n'
        f'    def run(self{signature}:\n        """{lines}\n        """\n        {body}'
    )


def test_every_kind_of_parameter_can_be_named(wheel: Any) -> None:
    doc = "Do.\n\nArgs:\n    a: A.\n    *b: B.\n    c: C.\n    d: D."
    assert wheel.findings(function(doc)) == []


def test_a_parameter_that_is_gone(wheel: Any) -> None:
    doc = "Do.\n\nArgs:\n    a: A.\n    old: Old."
    assert wheel.findings(function(doc, "a: int")) == [
        "dsh.new.X documents old, which it does not take"
    ]


def test_a_parameter_that_is_left_out(wheel: Any) -> None:
    doc = "Do.\n\nArgs:\n    a: A."
    assert wheel.findings(function(doc, "a: int, b: int")) == [
        "dsh.new.X does not say what b is; name it under Args:"
    ]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ("size: Its size.", []),
        ("", []),
        ("old: Old.", ["documents old, which its constructor does not take"]),
    ],
)
def test_the_arguments_of_a_class(wheel: Any, args: str, told: list[str]) -> None:
    doc = f"An X.\n\n    Args:\n        {args}\n    " if args else "An X."
    code = f'class X:\n    """{doc}"""\n\n    def __init__(self, size: int) -> None: ...'
    found = wheel.findings(code)
    assert [text.removeprefix("dsh.new.X ") for text in found][: len(told)] == told
    assert len(found) == (2 if told else 0)


# -- services, and the kernel, say everything ----------------------------------------------------


@pytest.mark.parametrize(
    ("doc", "signature", "told"),
    [
        ("Do.", ", a: int) -> None", "does not say what a is; name it under Args:"),
        (
            "Do it with `a`.",
            ", a: int) -> int",
            "does not say what it returns; add Returns:, or begin with Return",
        ),
        ("Do it with `a`.", ", a: int) -> None", None),
        ("Do.\n\nArgs:\n    a: A.", ", a: int) -> None", None),
        # its type says what it is
        ("Do.", ", plugin_error: PluginError | None) -> None", None),
        ("Do.\n\nArgs:\n    a: A.", ", a: int, plugin_error: dsh.core.PluginError) -> None", None),
        ("Do.", ", error: PluginError) -> None", "does not say what error is; name it under Args:"),
        ("Return it.", ") -> int", None),
        ("Tell whether it is.", ") -> bool", None),
        ("Do.\n\nReturns:\n    It.", ") -> int", None),
        ("Do.\n\nYields:\n    It.", ") -> Iterator[int]", None),
        ("Do.", ") -> NoReturn", None),
    ],
)
def test_a_method_of_a_service(wheel: Any, doc: str, signature: str, told: str | None) -> None:
    expected = [] if told is None else [f"dsh.new.X.run {told}"]
    assert wheel.findings(method(doc, signature)) == expected
    # elsewhere the summary may be enough
    assert wheel.findings(method(doc, signature, base="Plugin")) == []


@pytest.mark.parametrize(
    ("doc", "body", "told"),
    [
        ("Do.", "raise Own('no')", True),
        ("Do.", "if self:\n            raise Own", True),
        ("Do.\n\nRaises:\n    Own: Always.", "raise Own('no')", False),
        ("Do.\n\nRaises:\n    DshError: Always.", "raise Own('no')", False),
        ("Do.\n\nRaises:\n    OSError: Always.", "raise Own('no')", True),
        ("Do.", "raise ValueError('no')", False),
        ("Do.", "def later():\n            raise Own('no')", False),
    ],
)
def test_the_errors_of_a_service(wheel: Any, doc: str, body: str, told: bool) -> None:
    own = 'class Own(DshError):\n    """Own."""\n\n    code = "OWN"\n\n\n'
    said = ["dsh.new.X.run raises Own; say when under Raises:"] if told else []
    assert wheel.findings(own + method(doc, ") -> None", body), "X Own") == said


def test_the_kernel_says_everything(wheel: Any) -> None:
    text = SOURCES["dsh-core/src/dsh/core/_plugins.py"]
    wheel.write(
        "packages/dsh-core/src/dsh/core/_plugins.py",
        text.replace("async def start(self)", "async def start(self, late: bool)"),
    )
    assert wheel.findings("", "") == [
        "dsh.core.Plugin.start does not say what late is; name it under Args:"
    ]


def test_an_override_leaves_it_to_what_it_overrides(wheel: Any) -> None:
    base = method("Do it with `a`.", ", a: int) -> None")
    below = '\n\n\nclass Y(X):\n    """A Y."""\n\n    def run(self, a: int) -> None:{}'
    assert wheel.findings(base + below.format(" ..."), "X Y") == []
    assert wheel.findings(base + below.format('\n        """Do nothing."""'), "X Y") == []
    stale = '\n        """Do.\n\n        Args:\n            b: B.\n        """'
    assert "dsh.new.Y.run documents b, which it does not take" in wheel.findings(
        base + below.format(stale), "X Y"
    )


def test_sections_are_read_as_they_are_written() -> None:
    sections = parse(
        griffe.Docstring(
            "Make an agent.\n\nArgs:\n    ctx: Who owns it.\n    *more: Whatever\n        else.\n\n"
            "Yields:\n    The agent.\n\nRaises:\n    AgentFault: It cannot be made.\n"
        )
    )
    assert sections.text == "Make an agent.\n"
    assert sections.args == ["ctx", "more"]
    assert sections.raises == {"AgentFault"}
    assert sections.tells_result


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ('class x(Plugin):\n    """An x."""', "the class dsh.new.x is not CapWords"),
        (
            'class X(Emit, name="aB"):\n    """An X."""',
            "the event 'aB' of dsh.new.X is not scope/action in kebab-case",
        ),
        (
            'class X(SessionData, type="a/b_c"):\n    """An X."""',
            "the payload 'a/b_c' of dsh.new.X is not scope/action in kebab-case",
        ),
        (
            'class X(Service, key="a-b"):\n    """An X."""',
            "the service key 'a-b' of dsh.new.X is not snake_case",
        ),
        (
            'class X(Plugin):\n    """An X."""\n\n    name = "a_b"',
            "the plugin name 'a_b' of dsh.new.X is not kebab-case",
        ),
        (
            'class X(DshError):\n    """An X."""\n\n    code = "a-b"',
            "the error code 'a-b' of dsh.new.X is not UPPER_SNAKE",
        ),
        (
            'class X(DshError):\n    """An X."""',
            "dsh.new.X has no code; set `code`, or constants to choose from",
        ),
    ],
)
def test_a_name_in_another_style(wheel: Any, code: str, told: str) -> None:
    assert wheel.findings(code, "x" if "class x" in code else "X") == [told]


@pytest.mark.parametrize(
    ("base", "body", "what"),
    [
        ('Emit, name="a/b"', "", "event 'a/b'"),
        ('SessionData, type="a/b"', "", "payload 'a/b'"),
        ('Service, key="a"', "", "service key 'a'"),
        ("DshError", '\n\n    code = "A"', "error code 'A'"),
    ],
)
def test_a_name_that_is_taken(wheel: Any, base: str, body: str, what: str) -> None:
    code = "\n\n\n".join(f'class {name}({base}):\n    """A class."""{body}' for name in "AB")
    assert wheel.findings(code, "A B") == [f"the {what} of dsh.new.B is that of dsh.new.A already"]


def test_a_code_taken_over_from_its_owner(wheel: Any) -> None:
    code = (
        'class A(DshError):\n    """An A."""\n\n    code = "A"\n\n\n'
        'class B(DshError):\n    """A B."""\n\n    code = A.code\n    OTHER = "OTHER"\n\n\n'
        'class C(A):\n    """A C."""\n\n    code = "A"'
    )
    assert wheel.findings(code, "A B C") == []


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("@tool\ndef runIt(text: str): ...", "the tool 'runIt' is not snake_case"),
        (
            "@tool(concurrent=True)\nasync def run(theText: str): ...",
            "the tool parameter 'theText' is not snake_case",
        ),
        ('Tool("run-it", "Run it.", {}, None)', "the tool 'run-it' is not snake_case"),
        ('Tool(name="runIt")', "the tool 'runIt' is not snake_case"),
        (
            'SCHEMA = {"type": "object", "properties": {"theText": {}, "a_b": {}}}  # of a tool',
            "the parameter in a schema 'theText' is not snake_case",
        ),
    ],
)
def test_what_a_model_is_told(wheel: Any, code: str, told: str) -> None:
    wheel.write("packages/dsh-new/src/dsh/new/_tools.py", code + "\n")
    assert wheel.findings("", "") == [told]


@pytest.mark.parametrize(
    ("doc", "listed", "sound"),
    [
        ('"""A wheel."""', "", False),
        ('"""A wheel. `dsh.new.extra` has more."""', "", True),
        ('"""A wheel."""', "extra", True),
    ],
)
def test_a_module_that_nobody_names(wheel: Any, doc: str, listed: str, sound: bool) -> None:
    wheel.write("packages/dsh-new/src/dsh/new/extra.py", '"""More."""\n')
    wheel.write("packages/dsh-new/src/dsh/new/_inner.py", "")
    wheel.write(NEW, f"{doc}\n\n__all__ = {listed.split()}\n")
    told = "the module dsh.new.extra is public, and its wheel's __init__ does not name it; "
    found = check(wheel.root)
    assert [text.partition(": ")[2][: len(told)] for text in found] == ([] if sound else [told])
