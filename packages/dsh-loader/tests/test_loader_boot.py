"""Starting a deployment: order, failures, and what is said about them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import field_validator

from dsh.core import (
    App,
    Context,
    EntryPoint,
    MountState,
    Plugin,
    PluginConfig,
    Service,
    inject,
    settings,
)
from dsh.loader import (
    BootError,
    ConfigFileError,
    ConfigKeyError,
    PluginNameError,
    RowError,
    open_app,
    read_deployment,
)

Install = Callable[..., AbstractContextManager[None]]
MakePoint = Callable[[str, Any, str, str], EntryPoint]


class Clock(Service, key="clock"):
    name = "clock"


class Needy(Plugin):
    name = "needy"
    clock = inject(Clock)


class Broken(Plugin):
    name = "broken"

    async def start(self) -> None:
        try:
            self.deep()
        except ValueError as error:
            raise RuntimeError("outer") from error

    def deep(self) -> None:
        raise ValueError("the well is dry")


class BrokenClock(Clock):
    name = "broken-clock"

    async def start(self) -> None:
        raise ValueError("no spring")


class Left(Service, key="left"):
    name = "left"


class Right(Service, key="right"):
    name = "right"
    left = inject(Left)


class LeftNeedsRight(Left):
    name = "left-needs-right"
    right = inject(Right)


class Parent(Plugin):
    name = "parent"

    async def start(self) -> None:
        self.ctx.mount(Needy)


class Quitter(Plugin):
    name = "quitter"

    async def start(self) -> None:
        self.ctx.app.root.request_dispose()


async def failure(deployment: dict[str, object], *plugins: Any) -> BootError:
    with pytest.raises(BootError) as caught:
        async with open_app({"bundle": None, **deployment}, plugins=plugins):
            pass
    return caught.value


async def test_host_preparation_comes_before_every_plugin() -> None:
    # case: BO-01
    seen: list[str] = []

    async def prepare(app: App) -> None:
        seen.append(f"prepare with {len(app.mounts)} mounts")
        app.ctx.provide(Clock, Clock(app.ctx))

    async def apply(ctx: Context, config: object) -> None:
        seen.append("plugin")

    async with open_app({"bundle": None}, plugins=[apply, Needy], prepare=prepare) as app:
        assert app.rows["needy"].state is MountState.ACTIVE
    assert seen == ["prepare with 0 mounts", "plugin"]


async def test_a_failing_preparation_is_labelled_and_disposes_the_host() -> None:
    # case: BO-01
    undone: list[str] = []

    def prepare(app: App) -> None:
        app.ctx.defer(lambda: undone.append("undone"))
        raise OSError("no snapshot")

    with pytest.raises(BootError) as caught:
        async with open_app({"bundle": None}, plugins=[Needy], prepare=prepare):
            pass
    assert "host preparation failed: OSError: no snapshot" in caught.value.message
    assert isinstance(caught.value.__cause__, OSError)
    assert undone == ["undone"]


async def test_a_plugin_that_closes_the_app_ends_the_start_without_a_verdict() -> None:
    # case: BO-02
    async with open_app({"bundle": None}, plugins=[Quitter, Needy]) as app:
        assert app.root.ending


async def test_the_audit_names_every_plugin_and_what_it_waits_for() -> None:
    # case: BO-03
    error = await failure({}, Needy, Broken)
    assert error.message.splitlines() == [
        "2 plugins did not start",
        f"  broken: ValueError: the well is dry ({__file__}:"
        f"{Broken.deep.__code__.co_firstlineno + 1} in deep)",
        "  needy: waits for the service 'clock' (nothing installed provides it; install a wheel "
        "that offers an entry point in the group dsh.seam.clock)",
    ]
    assert [(p.name, p.kind) for p in error.problems] == [
        ("broken", "failed"),
        ("needy", "pending"),
    ]


async def test_a_failed_provider_explains_its_consumers() -> None:
    # case: BO-03
    error = await failure({}, Needy, BrokenClock)
    reasons = {problem.name: problem.reason for problem in error.problems}
    assert "broken-clock would provide it but is failed" in reasons["needy"]


async def test_a_cycle_is_spelled_out() -> None:
    error = await failure({}, Right, LeftNeedsRight)
    assert "a cycle: " in error.problems[0].reason
    assert "right -> left-needs-right" in error.message


async def test_a_child_is_named_below_its_row() -> None:
    error = await failure({}, Parent)
    assert error.problems[0].name == "parent > needy"


async def test_the_stack_is_that_of_the_deepest_cause_and_not_in_the_message() -> None:
    # case: BO-04
    error = await failure({}, Broken)
    assert error.stack.rstrip().endswith("ValueError: the well is dry")
    assert "in deep" in error.stack
    assert "Traceback" not in error.message


async def test_a_failed_start_undoes_what_had_started() -> None:
    undone: list[str] = []

    async def apply(ctx: Context, config: object) -> None:
        ctx.defer(lambda: undone.append("undone"))

    await failure({}, apply, Broken)
    assert undone == ["undone"]


async def test_a_wrong_setting_names_row_and_file_and_starts_nothing(
    install: Install, tmp_path: Path
) -> None:
    # case: BO-05
    started: list[str] = []

    async def apply(ctx: Context, config: object) -> None:
        started.append("yes")

    file = tmp_path / "dsh.yaml"
    text = "bundle: null\nplugins:\n  - use: extra\n    id: e2\n    config:\n      sice: 3\n"
    file.write_text(text, encoding="utf-8")
    with install("tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app(file, plugins=[apply]):
            pass
    assert caught.value.where == f"{file}, line 6"
    assert caught.value.path == "plugins.e2.config.sice"
    assert "did you mean 'size'?" in str(caught.value.hint)
    assert started == []
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("config", "path", "detail"),
    [
        ({"size": "big"}, "plugins.extra.config.size", "valid integer"),
        ({"nested": {"dept": 1}}, "plugins.extra.config.nested.dept", "unknown field"),
        ({"size": "x", "nested": {"depth": "y"}}, "plugins.extra.config.size", "and 1 more"),
    ],
)
async def test_fields_are_checked_at_every_depth(
    install: Install, config: dict[str, object], path: str, detail: str
) -> None:
    with install("tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app({"bundle": None, "plugins": [{"use": "extra", "config": config}]}):
            pass
    assert caught.value.path == path
    assert detail in caught.value.detail


async def test_settings_are_validated_once_and_defaults_not_at_all(
    install: Install, make_point: MakePoint
) -> None:
    validated: list[int] = []
    started: list[int] = []

    class Counted(Plugin):
        name = "counted"

        class Config(PluginConfig):
            size: int = 1

            @field_validator("size")
            @classmethod
            def note(cls, value: int) -> int:
                validated.append(value)
                return value

        config = settings(Config)

        async def start(self) -> None:
            started.append(self.config.size)

    point = make_point("counted", Counted, "dsh.plugins", "counted-wheel")
    rows = [{"use": "counted"}, {"use": "counted", "id": "again", "config": {"size": 2}}]
    with install(points=(point,)):
        async with open_app({"bundle": None, "plugins": rows[:1]}):
            assert (validated, started) == ([], [1])
        assert not Counted.Config.__pydantic_complete__, "its validator was not needed"
        async with open_app({"bundle": None, "plugins": rows}):
            assert (validated, sorted(started)) == ([2], [1, 1, 2])


async def test_a_plugin_without_settings_takes_none(install: Install) -> None:
    deployment = {"bundle": None, "plugins": [{"use": "tool-bash", "config": {"a": 1}}]}
    with install("local", "tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app(deployment):
            pass
    assert "takes no settings" in caught.value.message
    assert "a plugin like tool-bash" in str(caught.value)


async def test_an_unknown_plugin_names_the_nearest(install: Install) -> None:
    with install("local", "tools"), pytest.raises(PluginNameError) as caught:
        async with open_app({"bundle": None, "plugins": ["tool-bahs"]}):
            pass
    assert "plugins.tool-bahs: no installed plugin is called 'tool-bahs'" in caught.value.message
    assert caught.value.hint == "did you mean 'tool-bash'?"


async def test_every_row_that_cannot_be_imported_is_told_at_once(
    install: Install, make_point: MakePoint
) -> None:
    def explode() -> None:
        raise ModuleNotFoundError("No module named 'numpy'")

    bad = EntryPoint("bad", "bad:X", "dsh.plugins", "bad-wheel", "1", explode)
    with install("tools", points=(bad,)):
        with pytest.raises(RowError) as caught:
            async with open_app({"bundle": None, "plugins": ["bad"]}):
                pass
        assert "No module named 'numpy'" in caught.value.message
        assert "bad-wheel" in caught.value.message
        error = await failure({"plugins": ["bad", "nope"]})
    assert [problem.name for problem in error.problems] == ["bad", "nope"]


async def test_what_is_no_plugin_is_refused(install: Install, make_point: MakePoint) -> None:
    odd = make_point("odd", 42, "dsh.plugins", "odd-wheel")
    with install(points=(odd,)), pytest.raises(RowError, match="42 is no plugin"):
        async with open_app({"bundle": None, "plugins": ["odd"]}):
            pass


async def test_rows_have_their_own_names_and_disabled_ones_do_not_exist(install: Install) -> None:
    deployment = {
        "bundle": None,
        "plugins": [
            {"use": "extra", "id": "one", "config": {"size": 1}},
            {"use": "extra", "id": "two", "config": {"size": 2}},
            {"use": "not-installed", "disabled": True},
        ],
    }
    with install("tools"):
        async with open_app(deployment) as app:
            assert [mount.name for mount in app.rows.values()] == ["one", "two"]


PLUGIN = """
from dsh.core import Plugin

class Mine(Plugin):
    name = "mine"
"""


async def test_a_file_beside_the_deployment_is_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    (tmp_path / "fn.py").write_text("async def apply(ctx, config):\n    pass\n", encoding="utf-8")
    file = tmp_path / "dsh.yaml"
    file.write_text("bundle: null\nplugins: [./mine.py, ./fn.py]\n", encoding="utf-8")
    async with open_app(read_deployment(user=False, config=file)) as app:
        assert sorted(app.rows) == ["fn.py", "mine.py"]


@pytest.mark.parametrize(
    ("source", "use", "detail"),
    [
        ("raise ValueError('at import')", "./p.py", "ValueError: at import"),
        ("def f(:", "./p.py", "SyntaxError"),
        ("x = 1", "./p.py", "neither a Plugin class nor"),
        (PLUGIN + "\nclass Other(Plugin):\n    pass\n", "./p.py", "several plugins: Mine, Other"),
        (PLUGIN, "./p.py:Nope", "has no 'Nope'"),
    ],
)
async def test_a_file_that_holds_no_plugin_is_told(
    tmp_path: Path, source: str, use: str, detail: str
) -> None:
    (tmp_path / "p.py").write_text(source, encoding="utf-8")
    file = tmp_path / "dsh.yaml"
    file.write_text(f"bundle: null\nplugins: [{{use: '{use}', id: p}}]\n", encoding="utf-8")
    with pytest.raises(RowError) as caught:
        async with open_app(file):
            pass
    assert detail in caught.value.message


async def test_one_of_several_plugins_in_a_file_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(PLUGIN + "\nclass Other(Plugin):\n    pass\n", encoding="utf-8")
    file = tmp_path / "dsh.yaml"
    file.write_text("bundle: null\nplugins: [{use: './p.py:Other', id: p}]\n", encoding="utf-8")
    async with open_app(file) as app:
        assert app.rows["p"].definition.name == "other"


async def test_a_module_attribute_is_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loader_case_module.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    deployment = {"bundle": None, "plugins": [{"use": "loader_case_module:Mine", "id": "plain"}]}
    async with open_app(deployment) as app:
        assert app.rows["plain"].state is MountState.ACTIVE
    with pytest.raises(RowError, match="did not load: ModuleNotFoundError"):
        async with open_app({"bundle": None, "plugins": [{"use": "no.such:X", "id": "x"}]}):
            pass


async def test_plugins_may_be_given_as_objects_with_settings() -> None:
    seen: list[object] = []

    async def apply(ctx: Context, config: object) -> None:
        seen.append(config)

    async with open_app({"bundle": None}, plugins=[(apply, {"a": 1}), Clock, Needy]) as app:
        assert app[Clock] is not None
    assert seen == [{"a": 1}]


async def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="there is no such file"):
        open_app(tmp_path / "nope.yaml")


async def test_leaving_the_app_disposes_everything() -> None:
    undone: list[str] = []

    async def apply(ctx: Context, config: object) -> None:
        ctx.defer(lambda: undone.append("undone"))

    async with open_app({"bundle": None}, plugins=[apply]) as app:
        mount = app.rows["apply"]
    assert undone == ["undone"]
    assert mount.state is MountState.DISPOSED


async def test_a_start_that_is_cancelled_leaves_nothing_behind() -> None:
    entered = anyio.Event()
    undone: list[str] = []

    async def apply(ctx: Context, config: object) -> None:
        ctx.defer(lambda: undone.append("undone"))
        entered.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:

        async def start() -> None:
            async with open_app({"bundle": None}, plugins=[apply]):
                pass

        group.start_soon(start)
        await entered.wait()
        group.cancel_scope.cancel()
    assert undone == ["undone"]


@pytest.mark.parametrize("ending", ["import sys; sys.exit(3)", "raise BaseException('x')"])
async def test_a_module_that_ends_the_process_is_a_broken_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    (tmp_path / "dsh_test_quitter.py").write_text(f"{ending}\n", encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    row = {"id": "mine", "use": "dsh_test_quitter:apply"}
    with pytest.raises(RowError, match=r"mine.*did not load"):
        async with open_app({"bundle": None, "plugins": [row]}):
            pass


@pytest.mark.parametrize("own", [{"cwd": "/"}, {"session_id": "t"}])
def test_a_resumed_session_takes_no_other_folder_or_id(own: dict[str, str]) -> None:
    app = open_app({"bundle": None})
    with pytest.raises(TypeError, match="leave out cwd and session_id"):
        app.agent(resume="s", **own)  # pyright: ignore[reportArgumentType]
