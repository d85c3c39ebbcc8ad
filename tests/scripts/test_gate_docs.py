"""`check_docs.py` runs what the pages show and follows where they point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_docs.py"


class Pages:
    """A small project with documentation."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def page(self, text: str, path: str = "README.md") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        return target

    def run(self, *arguments: str, **variables: str) -> tuple[int, str]:
        command = [sys.executable, str(SCRIPT), "--root", str(self.root), *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | variables
        )
        assert done.stderr == ""
        return done.returncode, done.stdout


def python(*lines: str, info: str = "python") -> str:
    return "\n".join([f"```{info}", *lines, "```", ""])


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_pages_that_hold_what_they_say_pass(pages: Any) -> None:
    pages.page(
        "# Front page\n\nSee [the map](docs/map.md#how-it-works), [below](#read-on), "
        "[the index](https://example.invalid/nowhere) and [a mail](mailto:nobody@example.invalid)."
        "\n\n## Read on\n\n"
        + python("import os", "value = os.getcwd()")
        + python("assert value == os.getcwd()")
        + python("raise SystemExit(3)", info="python no-run")
        + "```text\n[no link](nowhere.md)\n```\n"
    )
    pages.page("# Map\n\n## How it works?\n\n[up](../README.md)\n", "docs/map.md")
    pages.page("# Wheel\n", "packages/dsh-a/README.md")
    pages.page("# Door\n", "apps/dsh-b/README.md")
    pages.page("# Costs\n", "benchmarks/README.md")
    assert pages.run() == (0, "docs: 5 pages, 3 blocks, 0 problems\n")


def test_code_that_fails(pages: Any) -> None:
    path = pages.page("# Page\n\nText.\n\n" + python("x = 1", "assert x == 2, 'not two'"))
    code, out = pages.run()
    assert code == 1
    assert f"{path}: its examples exit 1" in out
    assert f'File "{path}:6", line 2' in out
    assert "AssertionError: not two" in out
    assert out.endswith("docs: 1 pages, 1 blocks, 1 problems\n")


def test_code_that_exits_by_itself(pages: Any) -> None:
    path = pages.page(python("import sys", "sys.exit(4)"))
    code, out = pages.run()
    assert code == 1
    assert f"{path}: its examples exit 4" in out


@pytest.mark.parametrize("info", ["python", "python no-run"])
def test_code_that_does_not_compile(pages: Any, info: str) -> None:
    path = pages.page("# Page\n\n" + python("def f(:", info=info))
    code, out = pages.run()
    assert code == 1
    assert f"{path}:4: does not compile: invalid syntax" in out


def test_code_that_hangs_past_the_limit(pages: Any) -> None:
    path = pages.page(python("import threading", "threading.Event().wait()"))
    code, out = pages.run("--limit", "0.5")
    assert code == 1
    assert f"{path}: its examples still run after 0.5 s" in out


def test_the_blocks_of_a_page_share_their_names_and_those_of_another_do_not(pages: Any) -> None:
    pages.page(python("shared = 1") + python("assert shared == 1"), "docs/a.md")
    path = pages.page(python("print(shared)"), "docs/b.md")
    code, out = pages.run()
    assert code == 1
    assert f"{path}: its examples exit 1" in out
    assert "NameError: name 'shared' is not defined" in out
    assert "1 problems" in out


def test_examples_run_in_an_empty_folder_without_key_or_settings(pages: Any) -> None:
    pages.page(
        python(
            "import os, pathlib, sys",
            "names = [n for n in os.environ if n.startswith(('DSH_', 'DEEPSEEK_'))]",
            "assert names == ['DSH_HOME'], names",
            "assert os.listdir() == ['examples.py'], os.listdir()",
            "assert os.environ['HOME'] == os.environ['DSH_HOME'] == os.getcwd()",
            "assert sys.stdin.read() == ''",
            "pathlib.Path('left').write_text('x')",
        )
    )
    code, out = pages.run(DEEPSEEK_API_KEY="sk-1", DSH_INVARIANTS="full", DSH_HOME="/elsewhere")
    assert (code, out) == (0, "docs: 1 pages, 1 blocks, 0 problems\n")
    assert os.listdir(pages.root) == ["README.md"]


@pytest.mark.parametrize("link", ["gone.md", "docs/gone.md#there", "../outside.py"])
def test_a_dead_link(pages: Any, link: str) -> None:
    path = pages.page(f"# Page\n\nSee [there]({link}).\n")
    code, out = pages.run()
    target = link.partition("#")[0]
    assert (code, out.splitlines()[0]) == (1, f"{path}: link to {target}, which does not exist")


@pytest.mark.parametrize("link", ["#nowhere", "other.md#nowhere", "other.md#Two-Words"])
def test_a_dead_anchor(pages: Any, link: str) -> None:
    path = pages.page(f"# Page\n\nSee [there]({link}) and [here](other.md#two-words).\n")
    pages.page("# Other\n\n## Two `words`\n\n```text\n# nowhere\n```\n", "other.md")
    code, out = pages.run()
    told = f"{path}: link to {link}, which has no such heading"
    assert (code, out.splitlines()[0]) == (1, told)
    assert out.endswith("1 problems\n")


def test_only_the_pages_that_are_named(pages: Any) -> None:
    sound = pages.page("# Sound\n", "docs/sound.md")
    pages.page("[dead](gone.md)\n")
    assert pages.run(str(sound)) == (0, "docs: 1 pages, 0 blocks, 0 problems\n")
