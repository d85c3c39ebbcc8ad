"""The catalog of this very workspace, against independent readings of its sources."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog import (
    classes_page,
    data_page,
    errors_page,
    events_page,
    index_page,
    kernel_page,
    modules_page,
    session_page,
)
from catalog.examples import example
from catalog.links import ERRORS
from catalog.markdown import slug
from catalog.shapes import Workspace
from dsh.core import DshError, Plugin
from dsh.session import APPEND, SessionEvent, event_from_wire, event_to_wire
from dsh.session import Enclosure as Turns

ROOT = Path(__file__).resolve().parents[2]
PAGES = {
    "README.md": index_page,
    "classes-and-functions.md": classes_page,
    "data-structures.md": data_page,
    "errors.md": errors_page,
    "events-and-services.md": events_page,
    "kernel-api.md": kernel_page,
    "modules.md": modules_page,
    "session-events.md": session_page,
}
Declared = Mapping[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def pages(workspace: Workspace) -> dict[str, str]:
    return {file: page.render(workspace) for file, page in PAGES.items()}


@pytest.fixture(scope="module")
def declared() -> Declared:
    """`(text, class)` of every class that a wheel declares, sorted, by the keyword of the text."""
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for place in ("packages", "apps"):
        for path in ROOT.glob(f"{place}/*/src/**/*.py"):
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for cls in (node for node in nodes if isinstance(node, ast.ClassDef)):
                for word in cls.keywords:
                    if word.arg is not None and isinstance(word.value, ast.Constant):
                        found[word.arg].add((str(word.value.value), cls.name))
    return {keyword: sorted(pairs) for keyword, pairs in found.items()}


def named(path: str) -> Any:
    """Import what a public path names."""
    parts = path.split(".")
    for cut in range(len(parts) - 1, 1, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(path)


def test_nothing_leaves_a_hole(workspace: Workspace) -> None:
    assert [str(problem) for problem in workspace.problems] == []


def test_every_event_is_on_the_page(
    declared: Declared, workspace: Workspace, pages: dict[str, str]
) -> None:
    events = [pair for pair in declared["name"] if "/" in pair[0]]
    assert len(events) > 20
    assert [(event.name, event.cls) for event in workspace.events] == events
    for name, cls in events:
        assert f"### Event {name}\n" in pages["events-and-services.md"]
        assert f".{cls}`," in pages["events-and-services.md"]


def test_every_service_key_is_on_the_page(
    declared: Declared, workspace: Workspace, pages: dict[str, str]
) -> None:
    services = declared["key"]
    assert len(services) >= 10
    assert [(service.key, service.cls) for service in workspace.services] == services
    for key, cls in services:
        assert f"### Service {key}\n" in pages["events-and-services.md"]
        assert f"`inject({cls})`" in pages["events-and-services.md"]


def test_every_event_type_of_the_log_is_on_the_page(
    declared: Declared, workspace: Workspace, pages: dict[str, str]
) -> None:
    types = [pair for pair in declared["type"] if "/" in pair[0]]
    assert len(types) > 15
    assert [(payload.type, payload.cls) for payload in workspace.payloads] == types
    for name, _ in types:
        assert f"### {name}\n" in pages["session-events.md"]


def test_every_plugin_that_is_installed_is_known(workspace: Workspace) -> None:
    installed = {
        (point.name, point.value)
        for wheel in workspace.wheels
        for point in wheel.points("dsh.plugins")
    }
    assert installed
    known = {name for plugin in workspace.plugins for name in plugin.entry_points}
    assert known == {name for name, _ in installed}


def test_events_are_what_they_are_at_run_time(workspace: Workspace) -> None:
    for event in workspace.events:
        cls = named(event.path)
        assert cls.event_name == event.name
        assert (cls.event_mode, cls.event_scope) == (event.mode, event.scope)
        assert (cls.event_realm, cls.event_errors) == (event.realm, event.errors)
        fields = [name for name, item in cls.__dataclass_fields__.items() if item.init]
        assert [field.name for field in event.fields] == fields


def test_services_are_what_they_are_at_run_time(workspace: Workspace) -> None:
    for service in workspace.services:
        cls = named(service.path)
        assert cls.__dict__["service_key"] == service.key
        assert bool(getattr(cls, "__abstractmethods__", ())) == service.abstract
        for method in service.methods:
            assert callable(getattr(cls, method.name))
        for provider in service.providers:
            assert issubclass(named(provider.path), cls)


def test_plugins_are_what_they_are_at_run_time(workspace: Workspace) -> None:
    for plugin in workspace.plugins:
        cls = named(plugin.path)
        assert issubclass(cls, Plugin)
        assert cls.name == plugin.name
        config = getattr(cls, "Config", None)
        fields = [] if config is None else list(config.model_fields)
        assert [field.name for field in plugin.config] == fields
        for injection in plugin.injects:
            found = getattr(cls, injection.attribute)
            assert (found.key, found.optional) == (injection.key, injection.optional)


def test_public_paths_can_be_imported(workspace: Workspace) -> None:
    for entry in (*workspace.values, *workspace.functions, *workspace.payloads):
        named(entry.path)


def test_error_codes_are_those_of_the_classes(workspace: Workspace) -> None:
    errors = [value for value in workspace.values if value.kind == "error"]
    assert errors
    for value in errors:
        cls = named(value.path)
        assert issubclass(cls, BaseException)
        for code in value.codes:
            if code.name != "code":
                assert getattr(cls, code.name) == code.code
        if issubclass(cls, DshError):
            assert value.codes, f"{value.path} has no code"


def test_links_lead_somewhere(script: Any, pages: dict[str, str]) -> None:
    others = script("generate").PAGES.keys() - pages.keys()
    anchors = {
        file: {slug(line.lstrip("#")) for line in text.splitlines() if re.match(r"#+ ", line)}
        for file, text in pages.items()
    }
    count = 0
    for file, text in pages.items():
        for target in re.findall(r"\]\(([^)]+)\)", text):
            count += 1
            path, _, anchor = target.partition("#")
            if path.startswith("../../"):
                assert (ROOT / path.removeprefix("../../")).is_file(), (file, target)
            elif path in others:
                other = (ROOT / "docs/catalog" / path).read_text(encoding="utf-8")
                found = {slug(line.lstrip("#")) for line in other.splitlines()}
                assert not anchor or anchor in found, (file, target)
            else:
                assert anchor in anchors[path or file] or (path and not anchor), (file, target)
    assert count > 1000


def test_headings_differ(pages: dict[str, str]) -> None:
    for text in pages.values():
        found = [slug(line.lstrip("#")) for line in text.splitlines() if re.match(r"#+ ", line)]
        assert len(found) == len(set(found))


def test_pages_know_no_machine_and_no_line(pages: dict[str, str]) -> None:
    for text in pages.values():
        assert str(ROOT) not in text
        assert not re.search(r"\.py:\d|#L\d", text)
        assert text.startswith("<!-- Generated by `uv run python scripts/generate.py`")


def test_tables_are_whole(pages: dict[str, str]) -> None:
    for text in pages.values():
        width = 0
        for line in text.splitlines():
            if not line.startswith("|"):
                width = 0
                continue
            bars = len(re.findall(r"(?<!\\)\|", line))
            width = width or bars
            assert bars == width, line


def test_methods_are_listed_once(workspace: Workspace) -> None:
    for service in workspace.services:
        names = [method.name for method in service.methods]
        assert len(names) == len(set(names)), service.key


def test_the_errors_a_method_names_are_linked(pages: dict[str, str]) -> None:
    text = pages["events-and-services.md"]
    part = text.split("#### SessionPersistence.load\n")[1].split("####")[0]
    assert (
        f"[`StoredSessionNotFound`]({ERRORS}#dshsession_persistencestoredsessionnotfound)" in part
    )


# --- the log ------------------------------------------------------------------------------


def test_examples_are_read_and_written_back(workspace: Workspace) -> None:
    seen = 0
    for payload in workspace.payloads:
        line = example(workspace, payload)
        assert line is not None, payload.type
        wire = json.loads(line)
        event = event_from_wire(wire)
        assert type(event.data) is named(payload.path)
        assert event_to_wire(event) == wire
        seen += 1
    assert seen == len(workspace.payloads) > 15


def test_kinds_are_those_of_the_classes(workspace: Workspace) -> None:
    for payload in workspace.payloads:
        assert named(payload.path).surface_eligible == (payload.kind == "surface")


def fits(turns: Turns, event: SessionEvent) -> bool:
    try:
        turns.check(event.data, event.surface_op)
    except Exception:
        return False
    return True


def test_places_are_those_the_log_accepts(workspace: Workspace) -> None:
    events = {
        payload.type: event_from_wire(json.loads(example(workspace, payload) or ""))
        for payload in workspace.payloads
    }
    outside, turn, step = Turns(), Turns(), Turns()
    for state, types in ((turn, ["turn/start"]), (step, ["turn/start", "step/start"])):
        for name in types:
            state.advance(events[name].data)
    expected = {
        "between turns: it opens one": (True, False, False),
        "in the open turn, which it names, while no step is open": (False, True, False),
        "in the open step, which it names with its turn": (False, False, True),
        "in the open turn, which it names, inside and outside of steps": (False, True, True),
        "anywhere in an open turn": (False, True, True),
    }
    seen: set[str] = set()
    for payload in workspace.payloads:
        event = events[payload.type]
        assert (event.surface_op == APPEND) == (payload.kind == "surface")
        place = session_page.place(payload)
        seen.add(place)
        found = tuple(fits(state, event) for state in (outside, turn, step))
        assert found == expected[place], payload.type
    assert seen == set(expected)


# --- what the pages are for ---------------------------------------------------------------


def test_open_vocabularies_name_their_members(pages: dict[str, str]) -> None:
    text = pages["data-structures.md"].split("## Open vocabularies\n")[1].split("\n## ")[0]
    for title, *_ in data_page.OPEN_UNIONS.values():
        assert f"### {title}\n" in text
    for tag in ("tool-call", "reasoning", "text-delta", "finish", "injection", "max-tokens"):
        assert f"| `{tag}` |" in text
    assert text.count("| any other |") == 4


def test_the_index_names_every_page(script: Any, pages: dict[str, str]) -> None:
    linked = set(re.findall(r"\]\(([^)#]+)\)", pages["README.md"]))
    assert linked == script("generate").PAGES.keys() - {"README.md"}


def test_the_kernel_page_has_what_a_plugin_calls(pages: dict[str, str]) -> None:
    text = pages["kernel-api.md"]
    for name in ("mount", "effect", "spawn", "on", "emit", "waterfall", "provide", "scope"):
        assert f"#### core.Context.{name}\n" in text
    assert "#### core.Plugin.start\n" in text
    assert "start_host" not in text


def test_a_class_that_is_hidden_and_gone_makes_no_kernel_page(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(kernel_page.INTERNAL, "Gone", frozenset({"name"}))
    with pytest.raises(ValueError, match=r"hides members of Gone, which dsh.core does not offer"):
        kernel_page.render(workspace)
