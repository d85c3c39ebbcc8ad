"""The printed deployment: loadable, with origins, without secrets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from dsh.loader import (
    LayerKind,
    compose,
    mapping_layer,
    parse_yaml,
    read_deployment,
    render_deployment,
)

Install = Callable[..., AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def wheels(install: Install):  # type: ignore[no-untyped-def]
    with install("local", "tools", "spine"):
        yield


def test_values_come_with_their_origin(home: Path, project: Path) -> None:
    home.mkdir(parents=True)
    (home / "dsh.yaml").write_text("model: a/b\nbash:\n  timeout_ms: 5\n", encoding="utf-8")
    deployment = read_deployment(
        defaults={"version": 1, "plugins": ["extra"]},
        defaults_label="defaults",
        sets=["plugins.extra.config.size=3"],
    )
    assert render_deployment(deployment) == (
        "version: 1  # defaults\n"
        "# bundle: agent-core, the only installed bundle that is nobody's default\n"
        "bash:\n"
        f"  timeout_ms: 5  # {home}/dsh.yaml, line 3\n"
        f"model: a/b  # {home}/dsh.yaml, line 1\n"
        "plugins:\n"
        "  - id: extra\n"
        "    config:\n"
        "      size: 3  # --set plugins.extra.config.size\n"
        "    use: extra  # defaults\n"
    )


def test_what_is_printed_reads_back_as_the_same_settings() -> None:
    data: dict[str, object] = {
        "version": 1,
        "agent": {
            "texts": ["yes", "no", "1", "1.5", "null", "~", "", "a: b", "# c", "x\ny", "\u2028é"],
            "yes": True,
            "empty": {},
            "none": None,
            "deep": {"a b": [1, 2.5, {"x": []}]},
            "tilde": "~/x",
        },
        "plugins": [{"use": "extra", "id": "true", "config": {"size": 1}}, "tool-bash"],
    }
    deployment = compose([mapping_layer(data, LayerKind.CALLER, "caller")])
    text = render_deployment(deployment)
    read_back = parse_yaml(text, where="shown").value
    assert isinstance(read_back, dict)
    again = compose([mapping_layer(read_back, LayerKind.CALLER, "again")])
    assert again.data == deployment.data
    assert [row.id for row in again.rows] == ["true", "tool-bash"]


def test_secrets_and_expressions_are_not_resolved_on_paper(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {
        "agent": {
            "api_key": "sk-literal-123456",
            "password": ["p-123456"],
            "token": None,
            "max_tokens": 5,
            "url": "http://${env:HOST_NAME}/",
            "from_env": "${env:MY_KEY}",
        }
    }
    monkeypatch.setenv("HOST_NAME", "internal.example")
    monkeypatch.setenv("MY_KEY", "sk-env-123456")
    deployment = compose([mapping_layer(data, LayerKind.CALLER, "caller")])
    text = render_deployment(deployment)
    assert "literal" not in text
    assert "p-123456" not in text
    assert "internal.example" not in text
    assert "sk-env" not in text
    assert '"${env:MY_KEY}"' in text
    assert '"http://${env:HOST_NAME}/"' in text
    assert "max_tokens: 5" in text
    assert "token: null" in text
    assert text.count("********") == 2


def test_an_empty_deployment_is_an_empty_document_and_tells_its_bundle(install: Install) -> None:
    with install("spine", "app"):
        assert (
            render_deployment(compose([]))
            == "# bundle: agent-core, the only installed bundle\n{}\n"
        )
    with install("spine", "acme"):
        assert render_deployment(compose([])).startswith(
            "# bundle: undecided: several installed wheels provide a bundle: acme-core (from"
        )
    assert render_deployment(compose([mapping_layer({"bundle": None}, LayerKind.SET, "x")])) == (
        "bundle: null  # x\n"
    )
