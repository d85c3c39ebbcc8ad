"""`check_workspace.py` names files that are too long and what belongs to one machine alone."""

from __future__ import annotations

from typing import Any

import pytest

SHELL = "packages/dsh-shell"


# -- sizes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        (f"{SHELL}/src/dsh/shell/_long.py", 600),
        (f"{SHELL}/tests/test_long.py", 1000),
        ("scripts/long.py", 600),
        ("tests/test_long.py", 1000),
        ("benchmarks/long.py", 600),
    ],
)
def test_a_file_that_is_too_long(tree: Any, findings: Any, path: str, limit: int) -> None:
    tree.write(path, "x = 1\n" * limit)
    assert findings() == []
    tree.write(path, "x = 1\n" * (limit + 1))
    assert findings() == [f"{path}: {limit + 1} lines, more than {limit}; split it by subject"]


# -- other people's machines ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "index-url = 'https://{}/simple'",
        "pip install --extra-index-url=https://{}/simple dsh",
        'source = {{ registry = "http://{}/simple" }}',
        "UV_INDEX_URL: https://{}/simple",
    ],
)
def test_a_private_package_index(tree: Any, findings: Any, line: str) -> None:
    tree.write("docs/setup.md", "# Setup\n\n" + line.format("pypi.org") + "\n")
    assert findings() == []
    tree.write("docs/setup.md", "# Setup\n\n" + line.format("mirror.corp:8080") + "\n")
    told = "names the package index mirror.corp:8080; use the public one"
    assert findings() == [f"docs/setup.md:3: {told}"]


@pytest.mark.parametrize("place", ["/home", "/Users", "C:\\Users"])
def test_the_home_of_whoever_wrote_it(tree: Any, findings: Any, place: str) -> None:
    folder = place + ("\\" if "\\" in place else "/")
    tree.write(".ci/run", f"cd {folder}me/project\n")
    tree.write(".cache/log", f"cd {folder}ada/project\n")
    assert findings() == []
    tree.write(".ci/run", f"cd {folder}ada/project\n")
    told = f"names the home folder {folder}ada; write ~ or a made-up path"
    assert findings() == [f".ci/run:1: {told}"]


def test_what_is_no_text_is_left_alone(tree: Any, findings: Any) -> None:
    (tree.root / "docs").mkdir()
    (tree.root / "docs" / "picture.png").write_bytes(b"\xff\xd8/ho" + b"me/ada/picture")
    assert findings() == []


def test_a_lock_with_a_private_host(tree: Any, findings: Any) -> None:
    public = 'source = { registry = "https://pypi.org/simple" }\n'
    files = 'url = "https://files.pythonhosted.org/packages/a.whl"\n'
    tree.write("uv.lock", public + files)
    assert findings() == []
    tree.write("uv.lock", public + files.replace("files.pythonhosted.org", "mirror.corp:8080"))
    assert findings() == [
        "uv.lock: records the host mirror.corp:8080; lock against the public index"
    ]
