"""Keys, rows, expressions and `--set`: what one layer may say."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dsh.core import NotJsonError, secrets
from dsh.core.json import JsonObject
from dsh.loader import (
    ConfigFileError,
    ConfigKeyError,
    InterpolationError,
    Layer,
    LayerKind,
    file_layer,
    mapping_layer,
    read_file,
)
from dsh.loader._sources import set_layer

Install = Callable[..., AbstractContextManager[None]]


def layer_of(path: Path, text: str) -> Layer:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    raw = read_file(path)
    assert raw is not None
    return file_layer(raw, LayerKind.USER)


def refused(path: Path, text: str) -> ConfigKeyError:
    with pytest.raises(ConfigKeyError) as caught:
        layer_of(path, text)
    return caught.value


def test_rows_become_a_mapping_by_id(tmp_path: Path, install: Install) -> None:
    text = """
version: 1
plugins:
  - tool-bash
  - {use: extra, id: extra-2, config: {size: 3}, disabled: true}
  - use: ./mine.py
"""
    with install("tools"):
        layer = layer_of(tmp_path / "dsh.yaml", text)
    assert layer.data["plugins"] == {
        "tool-bash": {"use": "tool-bash"},
        "extra-2": {"use": "extra", "config": {"size": 3}, "disabled": True},
        "mine.py": {"use": "./mine.py"},
    }
    assert layer.where(("plugins", "extra-2", "config", "size")).endswith("dsh.yaml, line 5")


@pytest.mark.parametrize(
    ("text", "path", "detail"),
    [
        ("modle: x", "modle", "unknown key"),
        ("model: 3", "model", "must be a non-empty string"),
        ("model: ''", "model", "must be a non-empty string"),
        ("version: 2", "version", "format version 1, not 2"),
        ("version: true", "version", "format version 1"),
        ("bundle: [a]", "bundle", "must be the name of a bundle"),
        ("limits: {max_step: 1}", "limits.max_step", "unknown limit"),
        ("limits: {max_steps: 0}", "limits.max_steps", "positive whole number"),
        ("limits: {max_steps: 1.5}", "limits.max_steps", "positive whole number"),
        ("limits: {timeout_s: -1}", "limits.timeout_s", "positive number"),
        ("seams: [bash]", "seams", "must be a mapping"),
        ("seams: {bash: 1}", "seams.bash", "must be the name of a provider"),
        ("bash: 1", "bash", "must be a mapping"),
        ("agent: x", "agent", "must be a mapping"),
        ("plugins: {a: 1}", "plugins", "must be a list"),
        ("plugins: [3]", "plugins[0]", "a row is a plugin name or a mapping"),
        ("plugins: [{us: a}]", "plugins[0].us", "no such key"),
        ("plugins: [{config: {}}]", "plugins[0]", "a row needs"),
        ("plugins: [a, {use: b, id: a}]", "plugins[1]", "second row with the id 'a'"),
        ("plugins: [{use: a, config: 3}]", "plugins.a.config", "must be a mapping"),
        ("plugins: [{use: a, disabled: maybe}]", "plugins.a.disabled", "true or false"),
        ("plugins: ['a b']", "plugins[0]", "no usable row id"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_path(
    tmp_path: Path, install: Install, text: str, path: str, detail: str
) -> None:
    file = tmp_path / "dsh.yaml"
    with install("local", "tools"):
        error = refused(file, text)
    assert str(file) in error.where
    assert error.path == path
    assert detail in error.detail


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("modle: x", "did you mean 'model'?"),
        ("bsah: {}", "did you mean 'bash'?"),
        ("limits: {max_step: 1}", "did you mean 'max_steps'?"),
        ("plugins: [{us: a}]", "did you mean 'use'?"),
        ("zzz: 1", "keys of a deployment: agent, bash, bundle"),
        ("tool-bash: {}", "plugins: [{use: tool-bash, config: {...}}]"),
    ],
)
def test_the_nearest_match_is_offered(
    tmp_path: Path, install: Install, text: str, hint: str
) -> None:
    with install("local", "tools"):
        error = refused(tmp_path / "dsh.yaml", text)
    assert hint in str(error.hint)


def test_an_empty_file_says_nothing(tmp_path: Path) -> None:
    assert layer_of(tmp_path / "dsh.yaml", "# nothing\n").data == {}


@pytest.mark.parametrize("text", ["- a\n", "just text\n", "42\n"])
def test_the_top_level_is_a_mapping(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigFileError) as caught:
        layer_of(tmp_path / "dsh.yaml", text)
    assert caught.value.stage == "validate"


def test_a_json_file_is_read_as_json(tmp_path: Path) -> None:
    assert layer_of(tmp_path / "d.json", '{"model": "a/b"}').data == {"model": "a/b"}
    with pytest.raises(ConfigFileError, match="occurs twice"):
        layer_of(tmp_path / "d.json", '{"model": "a", "model": "b"}')
    with pytest.raises(ConfigFileError, match="not readable as JSON"):
        layer_of(tmp_path / "d.json", '{"limits": {"timeout_s": NaN}}')


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "dsh.yaml"
    file.write_bytes(b"model: \xff\n")
    raw = read_file(file)
    assert raw is not None
    with pytest.raises(ConfigFileError, match="not UTF-8"):
        file_layer(raw, LayerKind.USER)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    file = tmp_path / "dsh.yaml"
    os.mkfifo(file)
    with pytest.raises(ConfigFileError, match="not a regular file"):
        read_file(file)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    file = tmp_path / "dsh.yaml"
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigFileError, match="larger than"):
        read_file(file)


# -- expressions ---------------------------------------------------------------------------


def resolved(data: JsonObject, **environ: str) -> JsonObject:
    with pytest.MonkeyPatch.context() as patch:
        for name, text in environ.items():
            patch.setenv(name, text)
        layer = mapping_layer({"agent": data}, LayerKind.CALLER, "caller")
    value = layer.data.get("agent", {})
    assert isinstance(value, dict)
    return value


def test_variables_are_put_in() -> None:
    data: JsonObject = {
        "a": "${env:PLAIN}",
        "b": "x-${env:PLAIN}-${env:OTHER:-fallback}",
        "c": ["${env:PLAIN}", {"d": "${env:PLAIN}"}],
        "e": "$${env:PLAIN}",
        "f": "costs $5 and {braces}",
    }
    assert resolved(data, PLAIN="v") == {
        "a": "v",
        "b": "x-v-fallback",
        "c": ["v", {"d": "v"}],
        "e": "${env:PLAIN}",
        "f": "costs $5 and {braces}",
    }


def test_an_unset_variable_makes_its_key_absent() -> None:
    assert resolved({"a": "${env:NOPE}", "b": ["${env:NOPE}", 1], "c": 2}) == {"b": [1], "c": 2}


def test_an_empty_variable_takes_the_default_as_in_a_shell() -> None:
    assert resolved({"a": "${env:EMPTY:-d}", "b": "${env:EMPTY}"}, EMPTY="") == {"a": "d", "b": ""}


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("url/${env:NOPE}/x", "the variable of ${env:NOPE} is not set"),
        ("${env:}", "names no variable"),
        ("${env:a b}", "names no variable"),
        ("${cwd}", "no known expression"),
        ("${js:1+1}", "no known expression"),
        ("${file:}", "no known expression"),
        ("${env:X", "without its }"),
        ("${file:nope.txt}", "does not exist"),
    ],
)
def test_an_expression_that_means_nothing_is_an_error(text: str, detail: str) -> None:
    with pytest.raises(InterpolationError) as caught:
        resolved({"a": text})
    assert detail in caught.value.message
    assert "agent.a" in caught.value.message


def test_a_file_is_relative_to_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "persona.txt").write_text("be brief\n", encoding="utf-8")
    layer = layer_of(tmp_path / "conf" / "dsh.yaml", "agent: {persona: '${file:persona.txt}'}")
    assert layer.data == {"agent": {"persona": "be brief"}}


def test_a_file_of_a_secret_and_a_variable_of_a_key_are_masked_from_now_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "env-value-123456")
    monkeypatch.setenv("P", "word-123456")
    (tmp_path / "secret.txt").write_text("file-value-123456\n", encoding="utf-8")
    text = "agent: {a: '${file:secret.txt}', b: '${env:MY_API_KEY}', password: 'pass ${env:P}'}"
    layer_of(tmp_path / "dsh.yaml", text)
    shown = secrets.redact("file-value-123456 env-value-123456 pass word-123456")
    assert shown == f"{secrets.MASK} {secrets.MASK} {secrets.MASK}"


def test_a_caller_s_mapping_must_be_json() -> None:
    with pytest.raises(NotJsonError):
        mapping_layer({"agent": {"a": object()}}, LayerKind.CALLER, "caller")


# -- --set ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("model=a/b", {"model": "a/b"}),
        ("model=a:b", {"model": "a:b"}),
        ("bash.timeout_ms=5", {"bash": {"timeout_ms": 5}}),
        ("bash.cwd=", {"bash": {"cwd": None}}),
        ("agent.x=[1, 'two']", {"agent": {"x": [1, "two"]}}),
        ("agent.x={a: b}", {"agent": {"x": {"a": "b"}}}),
        ("agent.x=yes", {"agent": {"x": "yes"}}),
        ("agent.x='1'", {"agent": {"x": "1"}}),
        ("agent.x=a=b", {"agent": {"x": "a=b"}}),
        ('agent."a.b".c=1', {"agent": {"a.b": {"c": 1}}}),
        ("plugins.extra.disabled=true", {"plugins": {"extra": {"disabled": True}}}),
        ("plugins.extra.config.size=4", {"plugins": {"extra": {"config": {"size": 4}}}}),
        ("plugins=[extra]", {"plugins": {"extra": {"use": "extra"}}}),
    ],
)
def test_assignments_are_paths_and_yaml(install: Install, text: str, data: JsonObject) -> None:
    with install("local", "tools"):
        assert set_layer(text).data == data


@pytest.mark.parametrize("text", ["", "=", "=1", "model", "a..b=1", ".a=1", "a.=1"])
def test_a_malformed_assignment_is_refused(text: str) -> None:
    with pytest.raises(ConfigKeyError) as caught:
        set_layer(text)
    assert "--set KEY.PATH=VALUE" in str(caught.value.hint)


def test_a_wrong_assignment_never_repeats_its_value(install: Install) -> None:
    with install("local"), pytest.raises(ConfigKeyError) as caught:
        set_layer("nope.key=hunter2-secret")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigFileError) as broken:
        set_layer("agent.x=[hunter2-secret")
    assert "hunter2" not in str(broken.value)
