"""Which installed provider serves a service key."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dsh.core import EntryPoint, Plugin
from dsh.loader import (
    BootError,
    ConfigKeyError,
    PluginNameError,
    SeamChoice,
    SeamError,
    open_app,
    read_deployment,
)
from dsh.loader._seams import choose_provider

Install = Callable[..., AbstractContextManager[None]]
MakePoint = Callable[[str, Any, str, str], EntryPoint]
DEPLOYMENT: dict[str, object] = {"bundle": None, "plugins": ["tool-bash"]}


def choose(**options: Any) -> SeamChoice:
    return choose_provider("bash", **options)


def test_installing_a_sibling_is_enough_and_removing_it_swaps_back(install: Install) -> None:
    with install("local", "app"):
        choice = choose(app="cli")
        assert (choice.provider.name, choice.reason) == ("bash-local", "app-default")
    with install("local", "remote", "app"):
        choice = choose(app="cli")
        assert (choice.provider.name, choice.reason) == ("bash-remote", "only-extra")
    with install("local", "app"):
        assert choose(app="cli").provider.name == "bash-local"


def test_a_third_one_is_an_error_that_lists_both_and_the_line_that_picks(install: Install) -> None:
    with install("local", "remote", "sandbox", "app"), pytest.raises(SeamError) as caught:
        choose(app="cli")
    error = caught.value
    assert error.candidates == ("bash-remote", "bash-sandbox")
    assert "bash-remote (from acme-bash-remote 1.0)" in error.message
    assert "bash-sandbox (from dsh-bash-sandbox 1.0)" in error.message
    assert error.hint == "pick one in dsh.yaml: seams: {bash: bash-remote}"


@pytest.mark.parametrize("name", ["remote", "bash-remote"])
def test_what_the_deployment_names_comes_first(install: Install, name: str) -> None:
    with install("local", "remote", "sandbox", "app"):
        choice = choose(app="cli", named=name)
    assert (choice.provider.name, choice.reason) == ("bash-remote", "named")


def test_the_app_s_default_comes_before_the_bundle_s(install: Install) -> None:
    with install("local", "sandbox", "app", "bundle"):
        assert choose(app="cli", bundle="big").provider.name == "bash-local"
        choice = choose(bundle="big")
        assert (choice.provider.name, choice.reason) == ("bash-sandbox", "bundle-default")


def test_a_default_that_is_not_installed_falls_through(install: Install) -> None:
    with install("sandbox", "app", "bundle"):
        assert choose(app="cli", bundle="big").reason == "bundle-default"


def test_an_embedder_takes_the_only_one_there_is(install: Install) -> None:
    with install("local", "app"):
        assert choose(bundle="agent-core").reason == "only-installed"


def test_two_defaults_of_others_are_a_question(install: Install) -> None:
    with install("local", "sandbox", "app", "bundle"), pytest.raises(SeamError):
        choose()


def test_nothing_installed_names_the_wheel(install: Install) -> None:
    with install("app"), pytest.raises(SeamError) as caught:
        choose(app="cli")
    assert caught.value.hint == "install dsh-bash-local"
    with install(), pytest.raises(SeamError) as other:
        choose_provider("telepathy")
    assert "dsh.seam.telepathy" in str(other.value.hint)


@pytest.mark.parametrize(
    ("seams", "message", "hint"),
    [
        ({"bash": "remot"}, "no installed provider of 'bash' is called 'remot'", "bash-local"),
        ({"bsah": "local"}, "nothing installed provides 'bsah'", "did you mean 'bash'?"),
    ],
)
async def test_a_wrong_name_is_told_with_its_place(
    install: Install, seams: dict[str, str], message: str, hint: str
) -> None:
    with install("local", "tools"), pytest.raises(SeamError) as caught:
        async with open_app({**DEPLOYMENT, "seams": seams}):
            pass
    assert message in caught.value.message
    assert "the mapping given to open_app" in caught.value.message
    assert hint in str(caught.value.hint)


def test_a_broken_declaration_of_defaults_is_left_out(
    install: Install, make_point: MakePoint, caplog: pytest.LogCaptureFixture
) -> None:
    def explode() -> None:
        raise RuntimeError("broken wheel")

    broken = EntryPoint("bad", "bad:X", "dsh.defaults", "bad-wheel", "1", explode)
    odd = make_point("odd", ["no", "mapping"], "dsh.defaults", "odd-wheel")
    with install("local", "app", points=(broken, odd)):
        assert choose(app="cli").provider.name == "bash-local"
    assert "bad-wheel" in caplog.text
    assert "odd-wheel" in caplog.text


async def test_a_missing_service_gets_its_provider_mounted(install: Install) -> None:
    with install("local", "tools", "app"):
        async with open_app(DEPLOYMENT) as app:
            assert list(app.rows) == ["tool-bash", "bash-local"]
            assert app.seams["bash"].provider.name == "bash-local"
            assert app["bash"].config.timeout_ms == 1000


async def test_shared_fields_survive_a_swap_and_own_fields_belong_to_one(install: Install) -> None:
    section = {"timeout_ms": 7, "local": {"drain_ms": 3}, "bash-sandbox": {"deny_network": False}}
    deployment = {**DEPLOYMENT, "bash": section}
    with install("local", "sandbox", "tools"):
        async with open_app({**deployment, "seams": {"bash": "local"}}) as app:
            config = app["bash"].config
            assert (config.timeout_ms, config.drain_ms) == (7, 3)
        async with open_app({**deployment, "seams": {"bash": "sandbox"}}) as app:
            config = app["bash"].config
            assert (config.timeout_ms, config.deny_network) == (7, False)


@pytest.mark.parametrize(
    ("section", "path", "hint"),
    [
        ({"timeut_ms": 7}, "bash.timeut_ms", "did you mean 'timeout_ms'?"),
        ({"local": {"drain": 7}}, "bash.local.drain", "did you mean 'drain_ms'?"),
        ({"bash-local": {"drain": 7}}, "bash.bash-local.drain", "did you mean 'drain_ms'?"),
        ({"sandbox": {"deny_network": True}}, "bash.sandbox", "drain_ms, timeout_ms"),
        ({"timeout_ms": "soon"}, "bash.timeout_ms", "None"),
    ],
)
async def test_a_wrong_field_of_a_section_is_told(
    install: Install, section: dict[str, object], path: str, hint: str
) -> None:
    with install("local", "tools"):
        for plugins in (["tool-bash"], []):
            deployment = {"bundle": None, "plugins": plugins, "bash": section}
            with pytest.raises(ConfigKeyError) as caught:
                async with open_app(deployment):
                    pass
            assert caught.value.path == path
            assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("section", "place"),
    [({}, "settings of bash-strict"), ({"bash": {"timeout_ms": 7}}, "given to open_app")],
)
async def test_a_field_that_nobody_wrote_is_told_where_it_goes(
    install: Install, section: dict[str, object], place: str
) -> None:
    with install("strict", "tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app({**DEPLOYMENT, **section}):
            pass
    assert caught.value.path == "bash.strict.folder"
    assert place in str(caught.value)


async def test_a_row_can_be_the_provider(install: Install) -> None:
    deployment = {
        "bundle": None,
        "plugins": ["tool-bash", {"use": "bash-remote", "config": {"timeout_ms": 9}}],
        "bash": {"timeout_ms": 5},
    }
    with install("local", "remote", "tools", "app"):
        async with open_app(deployment) as app:
            assert sorted(app.rows) == ["bash-remote", "tool-bash"]
            assert app["bash"].config.timeout_ms == 9
            assert dict(app.seams) == {}


async def test_nothing_is_mounted_because_it_is_installed(install: Install) -> None:
    with install("local", "tools", "app"):
        async with open_app({"bundle": None, "plugins": ["extra"]}) as app:
            assert list(app.rows) == ["extra"]


async def test_a_seam_that_is_named_is_mounted_for_optional_users(install: Install) -> None:
    with install("local"):
        async with open_app({"bundle": None, "seams": {"bash": "local"}}) as app:
            assert app["bash"] is not None


async def test_null_takes_back_what_a_lower_layer_names(install: Install, tmp_path: Path) -> None:
    file = tmp_path / "dsh.yaml"
    file.write_text("bundle: null\nseams: {bash: local}\n")
    with install("local"):
        async with open_app(read_deployment(config=file, sets=["seams.bash=null"])) as app:
            assert (list(app.rows), app.get("bash")) == ([], None)


async def test_a_missing_provider_is_told_by_the_audit(install: Install) -> None:
    with install("tools", "app"), pytest.raises(BootError) as caught:
        async with open_app(DEPLOYMENT):
            pass
    (problem,) = caught.value.problems
    assert (problem.name, problem.kind) == ("tool-bash", "pending")
    assert "waits for the service 'bash'" in problem.reason
    assert "install dsh-bash-local" in problem.reason


async def test_settings_of_a_provider_that_is_gone_say_so(install: Install) -> None:
    data = {**DEPLOYMENT, "bash": {"remote": {"timeout_ms": 5}}}
    with install("local", "remote", "tools"):
        async with open_app({**data, "seams": {"bash": "local"}}):
            pass
    with install("local", "tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app(data):
            pass
    assert caught.value.path == "bash.remote"
    assert caught.value.detail.endswith("settings of an installed provider, which are local")
    assert caught.value.hint == "fields here: drain_ms, timeout_ms"


async def test_a_misspelt_provider_in_a_section_is_told(install: Install) -> None:
    data = {**DEPLOYMENT, "bash": {"locl": {"timeout_ms": 5}}}
    with install("local", "tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app(data):
            pass
    assert caught.value.hint == "did you mean 'local'?"


async def test_an_unknown_field_of_a_provider_is_still_told_as_one(install: Install) -> None:
    data = {**DEPLOYMENT, "bash": {"drain": 5}}
    with install("local", "tools"), pytest.raises(ConfigKeyError) as caught:
        async with open_app(data):
            pass
    assert (caught.value.detail, caught.value.hint) == ("unknown field", "did you mean 'drain_ms'?")


async def test_a_provider_that_provides_nothing_is_named(
    install: Install, make_point: MakePoint
) -> None:
    class Impostor(Plugin):
        name = "bash-impostor"

    offered = make_point("bash-impostor", Impostor, "dsh.seam.bash", "acme-impostor")
    with install("tools", points=(offered,)), pytest.raises(BootError) as caught:
        async with open_app(DEPLOYMENT):
            pass
    (problem,) = caught.value.problems
    assert "bash-impostor from acme-impostor is offered for it and active" in problem.reason


async def test_a_plugin_offered_in_another_group_is_told_where(
    install: Install, make_point: MakePoint
) -> None:
    class Words(Plugin):
        name = "words"

    misspelt = make_point("words", Words, "dsh.plugin", "acme-words")
    with install(points=(misspelt,)), pytest.raises(PluginNameError) as caught:
        async with open_app({"bundle": None, "plugins": ["words"]}):
            pass
    assert caught.value.hint == (
        "acme-words offers 'words' in the entry-point group dsh.plugin; "
        "a plugin that a row names is offered in dsh.plugins"
    )


async def test_a_distribution_without_an_entry_point_is_told(install: Install) -> None:
    with install(), pytest.raises(PluginNameError) as caught:
        async with open_app({"bundle": None, "plugins": ["pydantic"]}):
            pass
    assert "has no entry point 'pydantic' in the group dsh.plugins" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ({"words": {"depth": 1}}, "write {use: words, config: ...}"),
        ({"use": "words", "depth": 1}, "settings of the plugin go under `config`"),
        ({"use": "words", "confg": {}}, "did you mean 'config'?"),
    ],
)
async def test_a_row_of_the_wrong_form_says_how_to_write_it(
    install: Install, row: dict[str, object], hint: str
) -> None:
    with install(), pytest.raises(ConfigKeyError) as caught:
        async with open_app({"bundle": None, "plugins": [row]}):
            pass
    assert hint in (caught.value.hint or "")
