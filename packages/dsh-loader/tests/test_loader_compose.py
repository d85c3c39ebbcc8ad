"""Merging: what wins, what is kept, and who said it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from dsh.core.json import JsonObject
from dsh.loader import Deployment, Layer, LayerKind, compose, mapping_layer

Install = Callable[..., AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def wheels(install: Install):  # type: ignore[no-untyped-def]
    with install("local", "tools"):
        yield


def layer(name: str, data: JsonObject, kind: LayerKind = LayerKind.USER) -> Layer:
    return mapping_layer(data, kind, name)


def merged(*data: JsonObject) -> Deployment:
    return compose([layer(f"layer {n}", item) for n, item in enumerate(data, 1)])


def test_mappings_merge_by_key_and_everything_else_is_replaced() -> None:
    deployment = merged(
        {"model": "a", "bash": {"timeout_ms": 1, "local": {"drain_ms": 2}}, "agent": {"l": [1]}},
        {"bash": {"local": {"drain_ms": 3}}, "agent": {"l": [2, 3]}},
    )
    assert deployment.section("bash") == {"timeout_ms": 1, "local": {"drain_ms": 3}}
    assert deployment.agent == {"l": [2, 3]}
    assert deployment.model == "a"


def test_rows_merge_by_id_and_keep_their_order() -> None:
    deployment = merged(
        {"plugins": ["tool-bash", {"use": "extra", "config": {"size": 1, "nested": {"depth": 2}}}]},
        {"plugins": [{"id": "extra", "config": {"size": 5}}, {"use": "extra", "id": "extra-2"}]},
        {"plugins": [{"id": "tool-bash", "disabled": True}]},
    )
    rows = deployment.rows
    assert [row.id for row in rows] == ["tool-bash", "extra", "extra-2"]
    assert rows[0].disabled
    assert rows[1].config == {"size": 5, "nested": {"depth": 2}}
    assert rows[2].use == "extra"


def test_a_row_that_names_another_plugin_drops_the_settings_below() -> None:
    deployment = merged(
        {"plugins": [{"use": "extra", "id": "x", "config": {"size": 1}}]},
        {"plugins": [{"use": "tool-bash", "id": "x"}]},
    )
    (row,) = deployment.rows
    assert (row.use, row.config) == ("tool-bash", {})


def test_every_value_knows_its_layer() -> None:
    deployment = merged(
        {"model": "a", "bash": {"timeout_ms": 1}, "plugins": ["extra"]},
        {"bash": {"local": {"drain_ms": 2}}, "plugins": [{"id": "extra", "config": {"size": 2}}]},
    )
    assert deployment.where(("model",)) == "layer 1"
    assert deployment.where(("bash", "timeout_ms")) == "layer 1"
    assert deployment.where(("bash", "local", "drain_ms")) == "layer 2"
    assert deployment.where(("plugins", "extra", "config", "size")) == "layer 2"
    assert deployment.rows[0].where == "layer 1"
    assert deployment.where(("nowhere",)) == "layer 1"


def test_an_unset_variable_lets_the_layer_below_show_through() -> None:
    upper = mapping_layer({"model": "${env:NOPE_M}"}, LayerKind.USER, "upper")
    assert compose([layer("lower", {"model": "a"}), upper]).model == "a"


def test_layers_are_never_changed_by_merging() -> None:
    lower = layer("lower", {"bash": {"timeout_ms": 1}})
    compose([lower, layer("upper", {"bash": {"timeout_ms": 2}})])
    assert lower.data == {"bash": {"timeout_ms": 1}}


def test_what_may_only_tighten_never_raises_a_limit() -> None:
    lower = layer("user", {"limits": {"max_steps": 10, "timeout_s": 60}})
    stranger = Layer(
        LayerKind.PROJECT,
        "project",
        {"limits": {"max_steps": 99, "timeout_s": 5, "max_tokens": 7}, "model": "m"},
        tighten_only=True,
    )
    deployment = compose([lower, stranger])
    limits = deployment.limits
    assert (limits.max_steps, limits.timeout_s, limits.max_tokens) == (10, 5, 7)
    assert deployment.where(("limits", "max_steps")) == "user"
    assert deployment.model == "m"


def test_nothing_at_all_is_the_bundle_alone() -> None:
    deployment = compose([])
    assert deployment.bundle is None
    assert not deployment.without_bundle
    assert deployment.rows == ()
    assert deployment.model is None
    assert merged({"bundle": None}).bundle is None
    assert merged({"bundle": None}).without_bundle
    assert merged({"bundle": None}, {"bundle": "acme-core"}).bundle == "acme-core"
