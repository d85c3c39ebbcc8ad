"""`check_types.py` runs mypy over every portion of the namespace and the typing tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_types.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mypy") is None, reason="needs mypy, from the dependency group type"
)

FIRST = '"""First."""\n\n\ndef double(value: int) -> int:\n    return 2 * value\n'
SECOND = '"""Second."""\n\nfrom dsh.first import double\n\nANSWER: int = double(21)\n'


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


@pytest.fixture
def check(tmp_path: Path, cache: Path) -> Any:
    """Return a function that writes the files given over a sound tree and runs the gate."""

    def run(**files: str) -> tuple[int, str]:
        sources = {
            "packages/dsh-first/src/dsh/first/__init__.py": FIRST,
            "packages/dsh-first/src/dsh/first/py.typed": "",
            "apps/dsh-second/src/dsh/second/__init__.py": SECOND,
            "apps/dsh-second/src/dsh/second/py.typed": "",
            "tests/typing/example.py": "from dsh.second import ANSWER\n\nx: int = ANSWER\n",
            "pyproject.toml": section("[tool.mypy]"),
        }
        names = {"first": 0, "second": 2, "example": 4}
        for name, text in files.items():
            sources[list(sources)[names[name]]] = text
        for path, text in sources.items():
            target = tmp_path / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(SCRIPT), str(tmp_path)],
            env=os.environ | {"MYPY_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def section(head: str) -> str:
    """Return one table of the workspace's manifest."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return head + text.split(head, 1)[1].split("\n[", 1)[0] + "\n"


def test_sound_types_pass(check: Any) -> None:
    code, out = check()
    assert code == 0, out
    assert out.count("Success: no issues found") == 2


@pytest.mark.parametrize(
    ("portion", "path"),
    [
        ("first", "packages/dsh-first/src/dsh/first/__init__.py"),
        ("second", "apps/dsh-second/src/dsh/second/__init__.py"),
    ],
)
def test_a_wrong_type_in_any_portion(check: Any, portion: str, path: str) -> None:
    code, out = check(**{portion: 'value: int = "one"\n'})
    assert code == 1
    assert f"{path}:1: error: Incompatible types in assignment" in out


def test_an_untyped_function(check: Any) -> None:
    code, out = check(first="def double(value):\n    return 2 * value\n")
    assert code == 1
    assert "first/__init__.py:1: error: Function is missing a type annotation" in out


def test_a_type_that_users_would_not_get(check: Any) -> None:
    code, out = check(example="from dsh.second import ANSWER\n\nx: str = ANSWER\n")
    assert code == 1
    assert "tests/typing/example.py:3: error: Incompatible types in assignment" in out
