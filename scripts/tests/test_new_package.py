"""`new_package.py` writes a wheel that the other gates accept once it says what it is."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "new_package.py"


@pytest.fixture
def create(tree: Any) -> Any:
    """Return a function that runs the script on `tree`."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), "--root", str(tree.root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    return run


def snapshot(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_a_new_wheel_lacks_its_readme_and_nothing_else(create: Any, tree: Any, script: Any) -> None:
    done = create("dsh-web-search", 'Searches "the web"', "--role", "interface")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("created packages/dsh-web-search; now run uv lock")
    check = script("check_workspace").check
    assert check(tree.root) == ["dsh-web-search: README.md says next to nothing"]
    readme = (tree.root / "packages/dsh-shell/README.md").read_text(encoding="utf-8")
    readme = readme.replace("dsh-shell", "dsh-web-search")
    tree.write("packages/dsh-web-search/README.md", readme)
    assert check(tree.root) == []
    manifest = tomllib.loads((tree.root / "packages/dsh-web-search/pyproject.toml").read_text())
    assert manifest["project"]["version"] == "1.0"
    assert manifest["project"]["description"] == 'Searches "the web"'
    assert manifest["project"]["dependencies"] == []
    assert manifest["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"] == [
        "src/dsh/web_search"
    ]
    assert manifest["tool"]["dsh"]["role"] == "interface"


def test_what_it_needs_is_pinned_where_it_is_ours(create: Any, tree: Any) -> None:
    needs = ("--needs", "dsh-core", "httpx>=0.27")
    assert create("dsh-web", "The web", "--role", "provider", *needs).returncode == 0
    manifest = tomllib.loads((tree.root / "packages/dsh-web/pyproject.toml").read_text())
    assert manifest["project"]["dependencies"] == ["dsh-core==1.0", "httpx>=0.27"]


def test_apps_live_among_the_apps(create: Any, tree: Any) -> None:
    assert create("dsh-door", "A door", "--role", "app").returncode == 0
    assert (tree.root / "apps/dsh-door/src/dsh/door/py.typed").is_file()


def test_the_lists_of_the_root_stay_sorted_and_name_it_once(create: Any, tree: Any) -> None:
    for name in ("dsh-zebra", "dsh-apple"):
        assert create(name, "A beast or a fruit", "--role", "library").returncode == 0
    data = tomllib.loads((tree.root / "pyproject.toml").read_text(encoding="utf-8"))
    listed = data["project"]["dependencies"]
    assert listed == sorted(listed) == sorted([*tree.names, "dsh-zebra", "dsh-apple"])
    assert list(data["tool"]["uv"]["sources"]) == listed
    assert data["tool"]["uv"]["package"] is False


def test_a_wheel_that_exists_is_left_alone(create: Any, tree: Any) -> None:
    before = snapshot(tree.root)
    done = create("dsh-shell", "Another shell", "--role", "interface")
    assert done.returncode == 1
    assert "dsh-shell exists already; pick another name or remove it" in done.stderr
    assert snapshot(tree.root) == before


@pytest.mark.parametrize("name", ["web", "dsh_web", "dsh-Web", "dsh-", "dsh-web-", "dsh--web"])
def test_a_name_that_is_no_wheels(create: Any, tree: Any, name: str) -> None:
    before = snapshot(tree.root)
    done = create(name, "The web", "--role", "library")
    assert done.returncode == 2
    assert f"{name!r} is no wheel name: use dsh-<words>" in done.stderr
    assert snapshot(tree.root) == before


def test_an_unknown_role(create: Any) -> None:
    done = create("dsh-web", "The web", "--role", "helper")
    assert done.returncode == 2
    assert "invalid choice: 'helper'" in done.stderr
