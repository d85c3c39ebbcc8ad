"""A deployment reduced to the providers of some services."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from dsh.core import entry_points
from dsh.loader import SeamError, only_providers, open_app, read_deployment

Install = Callable[..., AbstractContextManager[None]]


def read(data: dict[str, object], *, app: str | None = None) -> Any:
    return read_deployment(defaults=data, app=app, user=False)


async def test_the_provider_that_would_be_used_comes_alone_and_with_its_settings(
    install: Install,
) -> None:
    whole = {
        "bundle": "agent-core",
        "plugins": ["tool-bash", "extra"],
        "bash": {"timeout_ms": 5, "remote": {}, "local": {"drain_ms": 7}},
    }
    with install("local", "remote", "tools", "spine", "app"):
        narrow = only_providers(read({**whole, "seams": {"bash": "local"}}, app="cli"), "bash")
        async with open_app(narrow) as app:
            assert list(app.rows) == ["bash-local"]
            bash: Any = app["bash"]
            assert (bash.config.timeout_ms, bash.config.drain_ms) == (5, 7)
            assert app.bundle is None
    with install("local", "remote", "tools", "spine", "app"):
        assert only_providers(read({}, app="cli"), "bash").seams == {"bash": "bash-remote"}


async def test_a_row_that_provides_the_service_is_kept(install: Install) -> None:
    rows = {"plugins": [{"use": "bash-local", "config": {"drain_ms": 3}}, "extra"]}
    with install("local", "remote", "tools"):
        narrow = only_providers(read({**rows, "bash": {"timeout_ms": 4}}), "bash")
        async with open_app(narrow) as app:
            assert list(app.rows) == ["bash-local"]
            bash: Any = app["bash"]
            assert (bash.config.timeout_ms, bash.config.drain_ms) == (4, 3)


async def test_a_disabled_row_is_not(install: Install) -> None:
    rows = {"plugins": [{"use": "bash-local", "disabled": True}]}
    with install("local", "remote", "tools", "app"):
        assert only_providers(read({**rows}, app="cli"), "bash").seams == {"bash": "bash-remote"}


async def test_code_named_by_a_row_is_asked_what_it_provides(
    install: Install, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from dsh.core import Plugin, Service\n"
        "class Own(Service, key='bash'):\n    name = 'own'\n"
        "class Other(Plugin):\n    name = 'other'\n"
    )
    file = tmp_path / "dsh.yaml"
    file.write_text('plugins: ["./own.py:Own", "./own.py:Other"]\n')
    with install():
        narrow = only_providers(read_deployment(user=False, config=file), "bash")
        assert [row.use for row in narrow.rows] == ["./own.py:Own"]
        async with open_app(narrow) as app:
            assert type(app["bash"]).__name__ == "Own"


def test_nothing_to_choose_from_is_the_error_of_the_seam(install: Install) -> None:
    with install("tools"), pytest.raises(SeamError, match="bash"):
        only_providers(read({}), "bash")
    assert entry_points("dsh.plugins")
