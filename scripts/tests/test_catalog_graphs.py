"""The pages of events, services and wheels show what the sources say, in diagrams that parse."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from catalog import graphs
from catalog.model import load_workspace
from catalog.shapes import Workspace
from catalog.uses import scan

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("render_events_map", "render_seams", "render_wheels")
RESERVED = {
    *("end", "subgraph", "graph", "flowchart", "style", "class", "click", "default"),
    *("loop", "alt", "else", "opt", "par", "and", "rect", "note", "participant", "actor"),
    *("critical", "break", "box"),
}
"""Words of the language that break a diagram when a node or a participant is called so."""

KERNEL = """
class Emit: ...


class Plugin: ...


class Service(Plugin): ...


def inject(service, *, optional=False): ...


def on(event): ...
"""

NEWS = '''
from dataclasses import dataclass

from dsh.core import Emit, Plugin, Service, inject, on

__all__ = ["Lost", "Paper", "Printed", "Sink"]


class Paper(Service, ABC, key="paper"):
    """A paper."""


class Sink(Service, key="sink"):
    """Takes everything."""


@dataclass(frozen=True, slots=True)
class Printed(Emit, name="news/printed"):
    """It is printed."""


@dataclass(frozen=True, slots=True)
class Lost(Emit, name="news/lost"):
    """Nobody hears of it."""


def work(ctx):
    ctx.emit(Printed())
    ctx.emit(Lost())
'''

READER = """
__all__ = ["Reader", "Tabloid"]

from dsh.core import Plugin, inject, on
from dsh.news import Paper, Printed, Sink


class Tabloid(Paper):
    name = "tabloid"


class Reader(Plugin):
    name = "reader"
    paper = inject(Paper)
    sink = inject(Sink, optional=True)

    @on(Printed)
    def hear(self, event): ...


def watch(app, ctx):
    app.on_dispatch(ctx, print)
"""


# -- diagrams ------------------------------------------------------------------------------------


def diagrams(text: str) -> list[list[str]]:
    """Return the lines of every diagram of a page."""
    found = re.findall(r"^```mermaid\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [[line.strip() for line in block.splitlines() if line.strip()] for block in found]


def faults(lines: list[str], *, strict: bool) -> list[str]:
    """Return why a diagram would not parse, or would show something else than meant.

    Args:
        lines: The diagram.
        strict: Hold it to the rules of generated ones as well: every id declared before it is
            used, every label in quotes.
    """
    found: list[str] = []
    opened = [line for line in lines if re.match(r"(subgraph|loop|alt|opt|par|rect)\b(?!-)", line)]
    if len(opened) != lines.count("end"):
        found.append(f"{len(opened)} blocks begin and {lines.count('end')} end")
    sequence = lines[0] == "sequenceDiagram"
    declared = re.compile(r"participant (\w+)" if sequence else r"(?:subgraph )?(\w+)[\[({]")
    ids = [name for line in lines for name in declared.findall(line)]
    used = [name for line in lines[1:] for name in _ends(line)]
    found += [f"{name} is a word of the language" for name in {*ids, *used} & RESERVED]
    if strict:
        found += [f"{name} is not declared" for name in dict.fromkeys(used) if name not in ids]
        found += [
            f"label without quotes: {line}"
            for line in lines
            if not sequence and re.search(r"\w[\[({]+[^\[({\"]", line)
        ]
    return found


def _ends(line: str) -> list[str]:
    """Return the ids at both ends of an arrow."""
    arrow = re.match(r"(\w+)\s*(?:-[-.].*[->.]|-{1,2}>{1,2})\s*(\w+)(?::.*)?$", line)
    return [arrow[1], arrow[2]] if arrow else []


def test_the_diagrams_of_all_pages_parse() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/*/README.md")]
    checked = 0
    for path in pages:
        for diagram in diagrams(path.read_text(encoding="utf-8")):
            checked += 1
            generated = path.parent.name == "catalog"
            assert faults(diagram, strict=generated) == [], path
    assert checked > 5


@pytest.mark.parametrize(
    ("diagram", "fault"),
    [
        ('flowchart LR\nsubgraph a["x"]\nb["y"]\n', "1 blocks begin and 0 end"),
        ("flowchart LR\nend --> b\n", "end is a word of the language"),
        ("sequenceDiagram\nparticipant loop as x\n", "loop is a word of the language"),
        ("sequenceDiagram\nparticipant a\na->>loop: x\n", "loop is a word of the language"),
        ("sequenceDiagram\nparticipant a\nloop 3 times\na->>a: x\n", "1 blocks begin"),
        ('flowchart LR\na["x"]\na -.-> b\n', "b is not declared"),
        ("sequenceDiagram\nparticipant a\na-->>b: x\n", "b is not declared"),
        ("flowchart LR\na[x (y)]\n", "label without quotes"),
        ("flowchart LR\na([x])\n", "label without quotes"),
    ],
)
def test_a_broken_diagram_is_seen(diagram: str, fault: str) -> None:
    (lines,) = diagrams(f"```mermaid\n{diagram}```\n")
    assert any(found.startswith(fault) for found in faults(lines, strict=True))


# -- the pages of a small workspace --------------------------------------------------------------


@pytest.fixture
def page(tree: Any) -> Any:
    """Return a function that renders a page of a small workspace."""
    tree.wheel("dsh-core", "kernel", ["anyio>=4.9"], KERNEL)
    tree.wheel("dsh-news", "interface", ["dsh-core==1.0"], f"from abc import ABC\n{NEWS}")
    needs = ["dsh-news==1.0", "dsh-core==1.0", "rich>=1"]
    tree.wheel("dsh-reader", "consumer", needs, READER)
    tree.write("packages/dsh-news/src/dsh/news/testing.py", "def f(ctx): ctx.emit(Printed())\n")
    tree.write_root()

    def render(name: str) -> str:
        return getattr(graphs, name)(load_workspace(tree.root))

    return render


def row(text: str, first: str) -> list[str]:
    """Return the cells of the table row that begins with `first`."""
    (line,) = [line for line in text.splitlines() if re.match(rf"\| \[?`?{first}(?![\w-])", line)]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_the_map_of_events(tree: Any, page: Any) -> None:
    tree.write(
        "packages/dsh-reader/src/dsh/reader/testing.py",
        "from dsh.news import Lost\n\n\ndef f(ctx):\n    ctx.on(Lost, print)\n",
    )
    text = page("render_events_map")
    here = "../../packages/dsh-news/src/dsh/news/__init__.py"
    there = "../../packages/dsh-reader/src/dsh/reader/"
    assert row(text, "news/printed")[1:] == [
        "emit", "-", f"[dsh-news/__init__.py]({here})",
        f"[dsh-reader/__init__.py]({there}__init__.py)",
    ]  # fmt: skip
    assert row(text, "news/lost")[4] == f"[dsh-reader/testing.py]({there}testing.py) *tests*"
    assert "    event_news_printed --> to_dsh_reader\n" in text
    assert "    event_news_lost -.-> to_dsh_reader\n" in text
    assert f"in that way: [dsh-reader/__init__.py]({there}__init__.py).\n" in text


def test_a_class_inside_a_helper_hides_no_event(tree: Any) -> None:
    tree.wheel("dsh-core", "kernel", ["anyio>=4.9"], KERNEL)
    helper = "def send(ctx, event):\n    class Note: ...\n    ctx.emit(event)\n"
    call = "def tell(ctx):\n    send(ctx, Printed())\n"
    news = f"from abc import ABC\n{NEWS}\n\n{helper}\n\n{call}"
    tree.wheel("dsh-news", "interface", ["dsh-core==1.0"], news)
    uses = scan(load_workspace(tree.root))
    assert uses.findings == ()
    assert {use.where for use in uses.of("news/printed", "dispatch")} == {"work", "tell"}


def test_the_page_of_services(page: Any) -> None:
    text = page("render_seams")
    source = "../../packages/dsh-reader/src/dsh/reader/__init__.py"
    paper, sink = row(text, "paper"), row(text, "sink")
    assert paper[2:] == ["dsh-news", f"[`Tabloid`]({source}) of dsh-reader", "dsh-reader", "-"]
    assert sink[2:] == ["dsh-news", "itself", "-", "dsh-reader"]
    seams, others = text.split("## Other services")
    assert "    service_paper -- provided by --- provider_dsh_reader\n" in seams
    assert "    user_dsh_reader --> service_paper\n" in seams
    assert "    user_dsh_reader -.-> service_sink\n" in others


def test_the_page_of_wheels(page: Any) -> None:
    text = page("render_wheels")
    assert row(text, "dsh-reader")[1:] == ["consumer", "A wheel", "core, news", "`rich>=1`"]
    assert "    wheel_dsh_reader --> wheel_dsh_news\n" in text
    assert "wheel_dsh_reader --> wheel_dsh_core" not in text
    assert text.index('["the kernel"]') < text.index('["interfaces"]') < text.index('["apps"]')


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_the_same_each_time_and_its_diagrams_parse(page: Any, name: str) -> None:
    text = page(name)
    assert text == page(name)
    assert [fault for one in diagrams(text) for fault in faults(one, strict=True)] == []
    assert diagrams(text)
    assert not re.search(r"\.py:\d|/tmp|/home", text)


def test_only_direct_arrows_are_drawn() -> None:
    direct = {
        "app": frozenset({"bundle", "loop", "core"}),
        "bundle": frozenset({"loop", "core"}),
        "loop": frozenset({"core"}),
        "core": frozenset[str](),
        "free": frozenset({"core"}),
    }
    assert graphs.reduced(direct) == {
        "app": {"bundle"},
        "bundle": {"loop"},
        "loop": {"core"},
        "core": set(),
        "free": {"core"},
    }


# -- this workspace ------------------------------------------------------------------------------


def test_every_event_service_and_wheel_has_its_row(workspace: Workspace) -> None:
    events, seams, wheels = (getattr(graphs, name)(workspace) for name in PAGES)
    for event in workspace.events:
        assert row(events, event.name)[3] != "-"
    for service in workspace.services:
        assert row(seams, service.key)[2] == service.wheel
    for wheel in workspace.wheels:
        assert row(wheels, wheel.name)[1] == wheel.role
    assert len(workspace.events) > 20
    assert row(seams, "bash")[4] == "dsh-cli, dsh-tool-bash"
    assert row(seams, "approval")[5] == "dsh-tools"
