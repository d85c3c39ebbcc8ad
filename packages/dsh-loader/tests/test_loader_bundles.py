"""Which installed bundle mounts the spine, and whether its parts go together."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dsh.core import Context, EntryPoint, MountState, Plugin, Service, inject
from dsh.loader import (
    BootError,
    PinError,
    RowError,
    SeamChoice,
    SeamError,
    bundle_hint,
    check_pins,
    choose_bundle,
    compose,
    explain_bundle,
    explain_choice,
    load_bundle,
    mapping_layer,
    open_app,
)
from dsh.loader import LayerKind as Kind

Install = Callable[..., AbstractContextManager[None]]
MakePoint = Callable[[str, Any, str, str], EntryPoint]


def picked(choice: SeamChoice) -> tuple[str, str]:
    return choice.provider.name, choice.reason


def deployment(data: dict[str, object], app: str | None = None) -> Any:
    return compose([mapping_layer(data, Kind.CALLER, "the test")], app=app)


# -- the rule ------------------------------------------------------------------------------------


def test_installing_a_sibling_swaps_the_bundle_and_removing_it_swaps_back(install: Install) -> None:
    with install("spine", "app"):
        assert picked(choose_bundle(app="cli")) == ("agent-core", "app-default")
    with install("spine", "acme", "app"):
        assert picked(choose_bundle(app="cli")) == ("acme-core", "only-extra")
    with install("acme", "app"):
        assert picked(choose_bundle(app="cli")) == ("acme-core", "only-extra")
    with install("spine", "app"):
        assert picked(choose_bundle()) == ("agent-core", "only-installed")


def test_two_siblings_are_a_question(install: Install) -> None:
    with install("spine", "acme", "zeta", "app"), pytest.raises(SeamError) as caught:
        choose_bundle(app="cli")
    error = caught.value
    assert (error.key, error.candidates) == ("bundle", ("acme-core", "zeta-core"))
    assert error.message == (
        "several installed wheels provide a bundle: acme-core (from acme-spine 1.0), "
        "zeta-core (from zeta-spine 1.0)"
    )
    assert error.hint == "pick one in dsh.yaml: bundle: acme-core"


def test_without_an_app_nobody_s_default_is_as_good_as_the_other(install: Install) -> None:
    with install("spine", "acme"), pytest.raises(SeamError, match="agent-core"):
        choose_bundle()


def test_the_named_one_comes_first(install: Install) -> None:
    with install("spine", "acme", "zeta", "app"):
        assert picked(choose_bundle("agent-core", app="cli")) == ("agent-core", "named")
        assert picked(choose_bundle("zeta-core", app="cli")) == ("zeta-core", "named")


@pytest.mark.parametrize(
    ("named", "installed", "hint"),
    [
        ("acme-cor", ("spine", "acme"), "did you mean 'acme-core'?"),
        ("xyz", ("spine", "acme"), "installed bundles: acme-core, agent-core"),
        ("agent-core", ("acme",), "install dsh-agent-core"),
        ("tool-bash", ("spine", "tools"), "installed bundles: agent-core"),
        ("xyz", (), "there are no installed bundles"),
    ],
)
async def test_a_bundle_that_is_not_installed_is_told_with_its_place(
    install: Install, named: str, installed: tuple[str, ...], hint: str
) -> None:
    with install(*installed), pytest.raises(SeamError) as caught:
        async with open_app({"bundle": named}):
            pass
    told = f"the mapping given to open_app: bundle: no installed bundle is called {named!r}"
    assert caught.value.message == told
    assert caught.value.hint == hint


async def test_no_bundle_at_all_names_the_wheel(install: Install) -> None:
    with install("app"), pytest.raises(SeamError) as caught:
        async with open_app():
            pass
    assert caught.value.message == "nothing installed provides a bundle"
    assert caught.value.hint == "install dsh-agent-core"
    assert caught.value.key == "bundle"


# -- in a deployment -----------------------------------------------------------------------------


def test_what_a_deployment_says_about_its_bundle(install: Install) -> None:
    with install("spine", "acme", "zeta", "app"):
        assert explain_bundle(deployment({"bundle": None})) is None
        named = explain_bundle(deployment({"bundle": "zeta-core"}))
        assert named is not None
        assert (named.provider.name, named.detail) == ("zeta-core", "named in the test")
        row = explain_bundle(deployment({"plugins": ["acme-core"]}))
        assert row is not None
        assert (row.provider.name, row.detail) == ("acme-core", "a row in the test")
        with pytest.raises(SeamError):
            explain_bundle(deployment({"plugins": [{"use": "acme-core", "disabled": True}]}))


async def test_the_bundle_is_mounted_with_the_agent_section(
    install: Install, make_point: MakePoint
) -> None:
    seen: list[object] = []

    async def mini(ctx: Context, config: object) -> None:
        seen.append(config)

    point = make_point("mini", mini, "dsh.bundles", "mini-wheel")
    with install("spine", "app", points=(point,)):
        async with open_app(deployment({"agent": {"persona": "x"}}, app="cli")) as app:
            assert set(app.rows) == {"mini"}
            assert app.rows["mini"].state is MountState.ACTIVE
            assert app.bundle is not None
            assert picked(app.bundle) == ("mini", "only-extra")
        assert seen == [{"persona": "x"}]
        async with open_app({"bundle": None}) as app:
            assert app.bundle is None
            assert app.rows == {}


async def test_a_row_that_mounts_a_bundle_is_the_bundle(install: Install) -> None:
    rows = [{"use": "acme-core", "id": "mine", "config": {"persona": "y"}}]
    with install("spine", "acme", "zeta", "app"):
        async with open_app({"plugins": rows}) as app:
            assert set(app.rows) == {"mine"}
            assert app.bundle is not None
            assert app.bundle.provider.name == "acme-core"


async def test_a_disabled_row_takes_the_bundle_away(install: Install) -> None:
    with install("spine", "app"):
        async with open_app({"plugins": [{"use": "agent-core", "disabled": True}]}) as app:
            assert app.rows == {}


async def test_a_bundle_that_no_wheel_lists_is_named_by_its_module(install: Install) -> None:
    path = "dsh.core.testing:NoSuchBundle"
    with install("spine"), pytest.raises(RowError, match="NoSuchBundle"):
        async with open_app({"bundle": path}):
            pass
    with install():
        async with open_app({"bundle": f"{__name__}:noted"}) as app:
            assert app.rows[f"{__name__}:noted"].state is MountState.ACTIVE
    with install("spine"):
        # the module of an installed one is that one
        assert choose_bundle("module:agent-core").provider.name == "agent-core"


async def noted(ctx: Context, config: object) -> None:
    """Stand for a bundle that a program brings along."""


def test_a_provider_is_explained_although_the_bundle_is_a_question(install: Install) -> None:
    with install("spine", "acme", "local"):
        assert explain_choice(deployment({}), "bash").provider.name == "bash-local"


class Llm(Service, key="llm"):
    """Stands for a service of a spine."""


class Talks(Plugin):
    name = "talks"
    llm = inject(Llm)


@pytest.mark.parametrize(
    ("installed", "bundle", "told"),
    [
        (("spine", "acme"), None, "(a bundle provides it; set bundle: acme-core or bundle: agent"),
        ((), None, "(a bundle provides it; install dsh-agent-core)"),
        (("acme",), "acme-core", "(the bundle acme-core does not provide it)"),
    ],
)
async def test_who_would_provide_a_service_of_the_spine(
    install: Install, installed: tuple[str, ...], bundle: str | None, told: str
) -> None:
    with install(*installed), pytest.raises(BootError) as caught:
        async with open_app({"bundle": bundle}, plugins=[Talks]):
            pass
    assert told in caught.value.message


async def test_a_bundle_that_failed_is_told_as_that(
    install: Install, make_point: MakePoint
) -> None:
    class Broken(Plugin):
        name = "broken-core"

        async def start(self) -> None:
            raise ValueError("no spine today")

    points = tuple(
        make_point("broken-core", Broken, group, "broken-wheel")
        for group in ("dsh.plugins", "dsh.bundles")
    )
    with install(points=points), pytest.raises(BootError) as caught:
        async with open_app({"bundle": "broken-core"}, plugins=[Talks]):
            pass
    assert "no spine today" in caught.value.message
    assert "(the bundle broken-core did not start)" in caught.value.message


def test_the_hint_names_every_installed_bundle(install: Install) -> None:
    with install("spine"):
        assert bundle_hint() == "set bundle: agent-core"


# -- versions that go together -------------------------------------------------------------------


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a distribution on the import path."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])

    def add(name: str, version: str, *requirements: str) -> None:
        info = site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}"]
        lines += [f"Requires-Dist: {item}" for item in requirements]
        (info / "METADATA").write_text("\n".join([*lines, "", ""]), encoding="utf-8")

    return add


async def test_a_wheel_of_another_version_is_refused_before_anything_is_imported(
    install: Install, wheel: Callable[..., None], make_point: MakePoint
) -> None:
    wheel("acme-part", "2.0")
    wheel("acme-other", "1.5")
    wheel("acme-spine", "1.0", "acme-part==1.0", "acme-other==1.0", "acme-gone==1.0", "anyio>=4")
    imported: list[str] = []

    def load() -> Any:
        imported.append("late")
        return noted

    late = EntryPoint("late", "late:late", "dsh.plugins", "acme-late", "1", load)
    with install("acme", points=(late,)), pytest.raises(PinError) as caught:
        async with open_app({"plugins": ["late"]}):
            pass
    error = caught.value
    assert error.code == "PIN"
    assert error.message == (
        "acme-spine 1.0 needs acme-part 1.0 (2.0 is installed), acme-other 1.0 (1.5 is installed)"
    )
    assert error.hint == "run: pip install acme-part==1.0 acme-other==1.0"
    assert (error.distribution, error.version) == ("acme-spine", "1.0")
    assert [item.name for item in error.unmet] == ["acme-part", "acme-other"]
    assert imported == []


async def test_a_row_that_mounts_the_bundle_is_held_to_it_too(
    install: Install, wheel: Callable[..., None]
) -> None:
    wheel("acme-part", "2.0")
    wheel("acme-spine", "1.0", "acme-part==1.0")
    with install("acme"), pytest.raises(PinError):
        async with open_app({"plugins": ["acme-core"]}):
            pass
    with install("acme"), pytest.raises(PinError):
        load_bundle(choose_bundle())


def test_pins_that_are_met_say_nothing(wheel: Callable[..., None]) -> None:
    wheel("acme-part", "1.0")
    wheel("acme-spine", "1.0", "acme-part==1.0.0", "acme-part<2", "acme-gone==1.0")
    check_pins("acme-spine")
    check_pins("acme-nowhere")
