"""JSON at the door, secrets, logging, discovery, diagnosis."""

from __future__ import annotations

import logging
import math
import sys
from abc import ABC
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.core import (
    App,
    Context,
    DshError,
    EntryPoint,
    MountState,
    NotJsonError,
    Plugin,
    PluginLoadError,
    Requirement,
    Service,
    entry_point_groups,
    entry_points,
    inject,
    install_log_filter,
    now_ms,
    requirements_of,
    secrets,
    version_of,
)
from dsh.core import json as djson
from dsh.core._discovery import replace_table
from dsh.core.testing import fake_entry_points, set_wall_clock

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-djson.MAX_INTEGER, djson.MAX_INTEGER)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_json_survives_its_round_trip(value: Any) -> None:
    assert djson.loads(djson.dumps(djson.check(value))) == value


def test_check_copies_and_normalises_tuples() -> None:
    inner = [1, (2, 3)]
    copy = djson.check({"a": inner, "b": inner})
    inner.append(4)
    assert copy == {"a": [1, [2, 3]], "b": [1, [2, 3]]}


def test_check_takes_sequences_and_mappings_by_what_they_are() -> None:
    class Numbers(list[int]):
        pass

    class Point(NamedTuple):
        x: int
        y: int

    copy = djson.check(
        {"list": Numbers([1, 2]), "tuple": Point(3, 4), "map": OrderedDict[str, int](a=1)}
    )
    assert copy == {"list": [1, 2], "tuple": [3, 4], "map": {"a": 1}}
    assert isinstance(copy, dict)
    assert [type(item) for item in copy.values()] == [list, list, dict]


@pytest.mark.parametrize(
    "bad",
    [
        math.nan,
        math.inf,
        2**53,
        {1: 2},
        b"x",
        {1, 2},
        object(),
        ["\ud800"],
        {"\udfff": 1},
        [{"deep": [math.nan]}],
    ],
)
def test_what_is_not_json_is_named_with_its_path(bad: Any) -> None:
    with pytest.raises(NotJsonError, match="here") as caught:
        djson.check(bad, where="here")
    assert caught.value.code == "NOT_JSON"


def test_a_path_leads_to_what_is_not_json() -> None:
    with pytest.raises(NotJsonError, match=r"here\[0\]\.deep\[0\] is not JSON"):
        djson.check([{"deep": [math.nan]}], where="here")
    with pytest.raises(NotJsonError, match="value is not JSON"):
        djson.check(math.nan)


def test_cycles_and_depth_are_refused_without_overflow() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(NotJsonError, match="contains itself"):
        djson.check(cycle)
    deep: Any = 0
    for _ in range(10_000):
        deep = [deep]
    with pytest.raises(NotJsonError) as caught:
        djson.check(deep)
    assert caught.value.code == "JSON_TOO_DEEP"
    with pytest.raises(NotJsonError):
        djson.loads("[" * 100_000)


def test_constants_and_odd_text_are_refused() -> None:
    for text in ("NaN", "Infinity", "{", ""):
        with pytest.raises(NotJsonError):
            djson.loads(text)
    with pytest.raises(NotJsonError):
        djson.dumps("\ud800")
    assert djson.dumps({"a": "é\x00"}) == b'{"a":"\xc3\xa9\\u0000"}'


# case: F-44
def test_secrets_are_masked_in_records_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    secrets.add("  sk-verysecretvalue  ")
    secrets.add("abc")
    secrets.add("sixsix")
    assert secrets.redact("a sixsix") == "a [secret]"
    assert secrets.contains("a sixsix")
    assert not secrets.contains("a seven")
    assert secrets.redact("key=sk-verysecretvalue abc") == "key=[secret] abc"
    logger = logging.getLogger("test-secrets")
    install_log_filter(caplog.handler)
    try:
        raise ValueError("rejected sk-verysecretvalue")
    except ValueError:
        logger.exception("call with %s failed", "sk-verysecretvalue")
    assert "sk-verysecretvalue" not in caplog.text
    assert "[secret]" in caplog.text
    assert "ValueError" in caplog.text


# case: F-44
async def test_a_contained_failure_shows_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    secrets.add("sk-anothersecret")

    async def plugin(ctx: Context, config: object) -> None:
        raise ValueError("bad key sk-anothersecret")

    async with App() as app:
        await app.mount(plugin).wait_state(MountState.FAILED)
    assert "sk-anothersecret" not in caplog.text
    assert len(caplog.records) == 1


async def test_a_contained_failure_is_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(failure: object) -> None:
        raise KeyError("observer")

    async with App() as app:
        app.on_error(app.ctx, broken)
        app.ctx.report(ValueError("reported"), "here")
    assert [record.message for record in caplog.records] == [
        "root: here: ValueError: reported",
        "root: on_error observer: KeyError: 'observer'",
    ]
    infos = [record.exc_info for record in caplog.records]
    assert [info and info[0] for info in infos] == [ValueError, KeyError]


async def test_a_contained_failure_is_written_whatever_its_text_holds(tmp_path: Path) -> None:
    file = tmp_path / "log"
    handler = logging.FileHandler(file, encoding="utf-8")
    logger = logging.getLogger("dsh.root")
    logger.addHandler(handler)
    try:
        async with App() as app:
            app.ctx.report(ValueError("lone \udc80"), "here")
    finally:
        logger.removeHandler(handler)
        handler.close()
    written = file.read_text(encoding="utf-8")
    assert written.startswith("root: here: ValueError: lone \\udc80\nValueError: lone \\udc80")


def test_an_error_carries_its_message() -> None:
    error = DshError("no lamp", hint="bring one")
    assert error.args == ("no lamp",)
    assert str(error) == "no lamp; bring one"


def test_discovery_sorts_and_loads_on_demand() -> None:
    points = [
        EntryPoint("b", "json:loads", "dsh.plugins", "dist-b", "1"),
        EntryPoint("a", "json:nothing", "dsh.plugins", "dist-a", "1"),
        EntryPoint("c", "no_such_module:x", "dsh.seam.bash", "dist-c", "2"),
    ]
    with fake_entry_points(*points):
        assert entry_point_groups("dsh.") == ("dsh.plugins", "dsh.seam.bash")
        assert entry_point_groups("dsh.seam.") == ("dsh.seam.bash",)
        with fake_entry_points():
            assert entry_points("dsh.plugins") == ()
        found = entry_points("dsh.plugins")
        assert [p.name for p in found] == ["a", "b"]
        assert entry_points("dsh.nothing") == ()
        import json

        assert found[1].load() is json.loads
        with pytest.raises(PluginLoadError, match="dist-a"):
            found[0].load()
        with pytest.raises(PluginLoadError, match="dist-c 2"):
            entry_points("dsh.seam.bash")[0].load()
    assert all(p.dist_name.startswith("dsh") for p in entry_points("dsh.plugins"))
    inner = EntryPoint("d", "dsh.core:EntryPoint.load", "dsh.plugins", "dist-d", "1")
    assert inner.load() is EntryPoint.load


def test_discovery_reads_what_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, name, version, points in (
        (first, "a-plain", "1", None),
        (first, "b-others", "1", "[console_scripts]\ncommand = json:loads\n"),
        (first, "c-ours", "2", "[dsh.plugins]\nours = json:loads\n[other]\nx = json:dumps\n"),
        (second, "c-ours", "1", "[dsh.plugins]\nshadowed = json:loads\n"),
        (second, "d-ours", "3", "[dsh.seam.bash]\nlocal = json:dumps\n"),
    ):
        folder.mkdir(exist_ok=True)
        installed(folder, name, version, "anything")
        if points is not None:
            info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
            (info / "entry_points.txt").write_text(points, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(first), str(second), *sys.path])
    previous = replace_table(None)
    try:
        known = ("c-ours", "d-ours")
        found = [
            point
            for group in entry_point_groups("")
            for point in entry_points(group)
            if point.dist_name in known
        ]
    finally:
        assert replace_table(previous)
    assert found == [
        EntryPoint("ours", "json:loads", "dsh.plugins", "c-ours", "2"),
        EntryPoint("local", "json:dumps", "dsh.seam.bash", "d-ours", "3"),
    ]


def test_the_version_of_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    installed(tmp_path, "dist-versioned", "3.1")
    assert version_of("dist-versioned") == "3.1"
    assert version_of("dist-that-nobody-has") is None


def installed(folder: Path, name: str, version: str, *requirements: str) -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {item}" for item in requirements]
    body = "Requires-Dist: of-the-description==9"
    (info / "METADATA").write_text("\n".join([*lines, "", body]), encoding="utf-8")


def test_requirements_of_a_distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "acme-a", "1.0")
    installed(tmp_path, "Acme_B", "2.1")
    installed(
        tmp_path,
        "acme-core",
        "3.0",
        "acme_a==1.0",
        "acme-b[fast] (==2.0)",
        "acme-c===1.5",
        "acme-d>=1,<2",
        "acme-e==1.*",
        "acme-f",
        "acme-g==1.0; extra == 'more'",
        "acme-h==1.0 ; python_version < '3'",
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    found = requirements_of("acme-core")
    assert [(item.name, item.pin, item.installed) for item in found] == [
        ("acme-a", "1.0", "1.0"),
        ("acme-b", "2.0", "2.1"),
        ("acme-c", "1.5", None),
        ("acme-d", None, None),
        ("acme-e", None, None),
        ("acme-f", None, None),
    ]
    assert [item.met for item in found] == [True, False, False, False, False, False]
    assert requirements_of("acme-nowhere") == ()


@pytest.mark.parametrize(
    ("pin", "version", "met"),
    [
        ("1.0", "1", True),
        ("1.0.0", "1.0", True),
        ("1.0", "1.0.1", False),
        ("1.1", "1.10", False),
        ("10", "1", False),
        ("1.0-RC.1", "1.0rc1", True),
        ("1.0.0rc1", "1.0rc1", True),
        ("1.0", "1.0rc1", False),
        ("1.0", "1.0+local", True),
        ("1.0+one", "1.0+two", False),
        ("v2.0", "2", True),
        (None, "7", True),
    ],
)
def test_a_pin_is_met_by_every_spelling_of_its_version(
    pin: str | None, version: str, met: bool
) -> None:
    assert Requirement("acme", pin, version).met is met


def test_the_wall_clock_can_be_replaced() -> None:
    with set_wall_clock(lambda: 12.5):
        assert now_ms() == 12_500
    assert now_ms() > 1_700_000_000_000


class Left(Service, ABC, key="left"):
    pass


class Right(Service, ABC, key="right"):
    pass


class NeedsRight(Left):
    right = inject(Right)


class NeedsLeft(Right):
    left = inject(Left)


class Unmet(Plugin):
    service = inject(Left)


# case: D-23
async def test_explain_names_what_is_missing_who_could_provide_it_and_cycles() -> None:
    points = [
        EntryPoint(name, "x:y", "dsh.seam.left", "dist-left", "1") for name in ("local", "remote")
    ]
    async with App() as app:
        with fake_entry_points(*points):
            await app.mount(Unmet).settled()
            text = str(app.explain())
            assert "installed: local (dist-left), remote (dist-left)" in text
            app.mount(NeedsRight)
            app.mount(NeedsLeft)
            await anyio.wait_all_tasks_blocked()
            explanation = app.explain()
        assert {frozenset(cycle) for cycle in explanation.cycles} == {
            frozenset({"needs-right", "needs-left"})
        }
        assert [m.state for m in explanation.inactive] == [MountState.PENDING] * 3
        missing = [[m.key for m in report.missing] for report in explanation.inactive]
        assert missing == [["left"], ["right"], ["left"]]
        assert str(explanation).splitlines()[-1] in (
            "cycle: needs-right -> needs-left -> needs-right",
            "cycle: needs-left -> needs-right -> needs-left",
        )


async def test_explain_shows_waits_and_failures() -> None:
    gate = anyio.Event()

    async def stuck(ctx: Context, config: object) -> None:
        ctx.defer(gate.wait)

    async def parent(ctx: Context, config: object) -> None:
        await ctx.mount(stuck).settled()

    async def broken(ctx: Context, config: object) -> None:
        raise ValueError("the reason")

    async with App() as app, anyio.create_task_group() as tasks:
        mount = await app.mount(parent).settled()
        await app.mount(broken).wait_state(MountState.FAILED)
        tasks.start_soon(mount.dispose)
        await anyio.wait_all_tasks_blocked()
        text = str(app.explain())
        assert "(ValueError: the reason)" in text
        assert "parent has waited" in text
        gate.set()
