"""The catalog shows every public docstring of the workspace, so a changed one is noticed.

Every public docstring of a copy of the workspace gets two words nobody has, one at its beginning
and one at its end; both have to stand on a page of the catalog.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType

import griffe
import pytest

from catalog.kernel_page import INTERNAL
from catalog.manifests import read_wheels
from catalog.members import PROTOCOL
from catalog.model import load_workspace
from catalog.tree import SourceTree, exported

OTHERS = {
    *("README.md", "a-turn.md", "config.md", "dsh.schema.json", "tools.md"),
    *("events-map.md", "seams.md", "wheels.md"),
}
"""Pages that are not made from the sources of the copy, or show no docstrings."""
SPECIAL = {"__init__", *PROTOCOL}

Script = Callable[[str], ModuleType]
Declared = Callable[..., Path]
Docstrings = dict[tuple[Path, int], str]


def docstrings(root: Path) -> Docstrings:
    """Return what each public docstring belongs to, by file and line."""
    tree = SourceTree(root, read_wheels(root, []))
    found: Docstrings = {}
    for module in tree.public_modules():
        note(found, module, module.path)
        for name in exported(module):
            item = tree.find(f"{module.path}.{name}")
            if item is None or isinstance(item, griffe.Module):
                continue
            note(found, item, tree.path(item))
            if isinstance(item, griffe.Class):
                for path, member in public_members(tree, item):
                    note(found, member, path)
    return found


def note(found: Docstrings, item: griffe.Object, path: str) -> None:
    if item.docstring is not None:
        assert isinstance(item.filepath, Path)
        found[item.filepath, item.docstring.lineno or 0] = path


def public_members(tree: SourceTree, cls: griffe.Class) -> Iterator[tuple[str, griffe.Object]]:
    """Yield the members of a class and those it has from private bases, nested ones included."""
    hidden = INTERNAL.get(cls.name, frozenset()) if cls.path.startswith("dsh.core.") else ()
    seen: set[str] = set()
    for one in tree.ancestry(cls):
        if one is not cls and tree.is_public(one):
            seen.update(one.members)  # what it has is told there
            continue
        for name, member in one.members.items():
            private = name.startswith("_") and name not in SPECIAL
            if private or name in seen or name in hidden or isinstance(member, griffe.Alias):
                continue
            seen.add(name)
            path = f"{tree.path(cls)}.{name}"
            yield path, member
            if isinstance(member, griffe.Class):
                yield from ((f"{path}.{m.name}", m) for _, m in public_members(tree, member))


def mark(marked: Mapping[tuple[Path, int], str]) -> dict[str, str]:
    """Put two words into each of these docstrings; return what each word belongs to."""
    words: dict[str, str] = {}
    by_file: dict[Path, dict[int, str]] = {}
    for (file, line), path in marked.items():
        by_file.setdefault(file, {})[line] = path
    for file, lines in by_file.items():
        text = file.read_text(encoding="utf-8").splitlines(keepends=True)
        nodes = [
            node.value
            for node in ast.walk(ast.parse("".join(text)))
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and node.lineno in lines
        ]
        for node in sorted(nodes, key=lambda node: -node.lineno):
            number = len(words)
            first, last = f"zq{number}first", f"zq{number}last"
            words[first] = words[last] = lines[node.lineno]
            assert node.end_lineno is not None
            source = "".join(text[node.lineno - 1 : node.end_lineno])
            changed = re.sub(r'\A(\s*r?""")', rf"\g<1>{first} ", source)
            changed = re.sub(r'(\s*"""[^"]*)\Z', rf" {last}\g<1>", changed)
            assert changed.count(f"zq{number}") == 2, source
            text[node.lineno - 1 : node.end_lineno] = [changed]
        file.write_text("".join(text), encoding="utf-8")
    return words


def lost(script: Script, root: Path) -> dict[str, str]:
    """Mark every public docstring below `root`; return the words that no page shows."""
    words = mark(docstrings(root))
    assert words
    generator = script("generate")
    findings: list[str] = []
    pages = {file: page for file, page in generator.PAGES.items() if file not in OTHERS}
    texts = generator.render_all(load_workspace(root), pages, findings)
    assert findings == []
    shown = set(re.findall(r"zq\d+(?:first|last)", "".join(texts.values())))
    return {word: path for word, path in words.items() if word not in shown}


def test_every_public_docstring_stands_on_a_page(
    script: Script, copy_workspace: Callable[[Path], Path], tmp_path: Path
) -> None:
    assert lost(script, copy_workspace(tmp_path)) == {}


CODE = '''
class _Base:
    def shine(self) -> None:
        """Shine."""


class LampError(LookupError):
    """A lamp does not do what it should."""

    code = "LAMP"
    BROKEN = "LAMP_BROKEN"
    """It is broken."""
    lamp: str
    """Which lamp."""

    def __init__(self, lamp: str) -> None:
        """Make the error.

        Args:
            lamp: The lamp's name.
        """
        self.lamp = lamp


class DarkError(LampError):
    """There is no light."""

    def __init__(self) -> None:
        super().__init__("all", code=self.BROKEN)


class FuseError(LampError):
    """The fuse is blown."""

    code = LampError.BROKEN


class Lamp(Service, _Base, ABC, key="lamp"):
    """A lamp."""

    class Config(PluginConfig):
        """What every lamp takes."""

        watts: int = 40
        """Its power."""

    async def start(self) -> None:
        """Warm up."""


class HandLamp(Lamp):
    """A lamp to carry."""

    battery = 1
    """How full it is."""

    class Config(Lamp.Config):
        """What a hand lamp takes."""

        hook: bool = False
        """Whether it has a hook."""

    def swing(self) -> None:
        """Swing it."""
'''
NAMES = ("DarkError", "FuseError", "HandLamp", "Lamp", "LampError")
SMALL = ("classes_page", "data_page", "errors_page", "events_page", "modules_page")


@pytest.fixture
def lamps(declared: Declared) -> Path:
    return declared(CODE, NAMES, {"dsh.plugins": {"hand-lamp": "dsh.lamp:HandLamp"}})


def test_members_of_plugins_errors_and_configurations_are_public(lamps: Path) -> None:
    paths = set(docstrings(lamps).values())
    assert {
        "dsh.lamp.Lamp.shine",
        "dsh.lamp.Lamp.start",
        "dsh.lamp.Lamp.Config.watts",
        "dsh.lamp.HandLamp.Config.hook",
        "dsh.lamp.HandLamp.swing",
        "dsh.lamp.HandLamp.battery",
        "dsh.lamp.LampError.BROKEN",
        "dsh.lamp.LampError.lamp",
        "dsh.lamp.LampError.__init__",
        "dsh.lamp",
    } <= paths


def test_each_of_them_stands_on_a_page(script: Script, lamps: Path) -> None:
    words = mark(docstrings(lamps))
    pages = {page: f"catalog.{page}" for page in SMALL}
    findings: list[str] = []
    text = "".join(script("generate").render_all(load_workspace(lamps), pages, findings).values())
    assert findings == []
    assert {path for word, path in words.items() if word not in text} == set()


def test_the_codes_of_errors_are_followed_to_their_constants(lamps: Path) -> None:
    codes = {value.cls: value.codes for value in load_workspace(lamps).values if value.codes}
    shown = {
        name: [(code.code, code.name, code.doc) for code in found] for name, found in codes.items()
    }
    assert shown == {
        "LampError": [("LAMP", "code", ""), ("LAMP_BROKEN", "BROKEN", "It is broken.")],
        "DarkError": [("LAMP_BROKEN", "code", "It is broken.")],
        "FuseError": [("LAMP_BROKEN", "code", "It is broken.")],
    }


def test_a_code_is_shown_with_its_meaning(script: Script, lamps: Path) -> None:
    pages = {"errors.md": "catalog.errors_page"}
    text = script("generate").render_all(load_workspace(lamps), pages, [])["errors.md"]
    assert "| `LAMP_BROKEN` | `BROKEN` | It is broken. |" in text
    assert "| `LAMP` | `code` | Where none of the others is given. |" in text
    assert "- `lamp`: `str`. Which lamp." in text
