"""The documentation site: which pages it has, and what is done to a page when it is read."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from docs_check.pages import find_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The settings of Sphinx, for a repository in a temporary folder."""
    monkeypatch.delenv("DSH_SITE_MERMAID", raising=False)
    module = _settings()
    module.__dict__["ROOT"] = tmp_path
    return module


def _settings() -> ModuleType:
    path = ROOT / "scripts" / "docs_site" / "conf.py"
    spec = importlib.util.spec_from_file_location("site_settings", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Sphinx:
    """What the settings connect to."""

    def __init__(self) -> None:
        self.prepare: Callable[..., None] | None = None

    def connect(self, event: str, callback: Callable[..., None]) -> int:
        assert event == "source-read"
        self.prepare = callback
        return 1

    def read(self, docname: str, text: str) -> str:
        assert self.prepare is not None
        source = [text]
        self.prepare(self, docname, source)
        return source[0]


@pytest.fixture
def sphinx(settings: Any) -> Sphinx:
    app = Sphinx()
    settings.setup(app)
    return app


def test_every_page_that_the_gate_checks_has_one_place_on_the_site() -> None:
    settings: Any = _settings()
    placed = [name for names in settings.chapters().values() for name in names]
    placed += [name for docname in settings.BELOW for name in settings.below(docname)]
    pages = {path.relative_to(ROOT).with_suffix("").as_posix() for path in find_pages(ROOT)}
    assert sorted(placed) == sorted(pages)
    patterns = [pattern for found in settings.NAVIGATION.values() for pattern in found]
    assert [pattern for pattern in patterns if not any(ROOT.glob(pattern))] == []


def test_a_link_to_a_folder_leads_to_its_readme(sphinx: Any, tmp_path: Path) -> None:
    for name in ("packages/dsh-a", "docs/deep"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "README.md").touch()
    text = "[a](../packages/dsh-a) [b](deep/#part) [c](page.md#x) [d](https://a/b) [e](#f)"
    assert sphinx.read("docs/page", text) == (
        "[a](../packages/dsh-a/README.md) [b](deep/README.md#part) "
        "[c](page.md#x) [d](https://a/b) [e](#f)"
    )


def test_blocks_show_their_files_and_outputs(sphinx: Any) -> None:
    text = (
        "```python file=src/a.py\nx\n```\n```text output\ny\n```\n"
        "```jsonl\n{}\n```\n```mermaid\nz\n```\n```sh\nls\n```\n"
    )
    assert sphinx.read("docs/page", text) == (
        "```{code-block} python\n:caption: src/a.py\n\nx\n```\n"
        "```{code-block} text\n:caption: Output\n\ny\n```\n"
        "```json\n{}\n```\n```text\nz\n```\n```sh\nls\n```\n"
    )


def test_a_page_with_others_below_it_lists_them(sphinx: Any, tmp_path: Path) -> None:
    for name in ("README.md", "docs/README.md", "docs/decisions/README.md", "docs/decisions/1.md"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert sphinx.read("docs/decisions/README", "# D\n") == (
        "# D\n\n\n```{toctree}\n:hidden:\n\n/docs/decisions/1\n```\n"
    )
    start = sphinx.read("README", "# dsh\n")
    assert ":caption: Start\n\nOverview <self>\n/docs/README\n```" in start
    assert ":caption: How it works\n\n/docs/decisions/README\n```" in start
    assert "Guides" not in start


def test_the_index_for_programs(script: Any, tmp_path: Path) -> None:
    sources = tmp_path / "_sources"
    (sources / "docs").mkdir(parents=True)
    (sources / "README.md.txt").write_text("# dsh\n\nA kit: for agents. And more.\n", "utf-8")
    page = "# Page\n\n<!-- a note -->\n\n```sh\nls\n```\n\nWhat it\nsays. And more.\n"
    (sources / "docs" / "page.md.txt").write_text(page, "utf-8")
    assert script("build_site").index(sources) == (
        "# dsh\n\nA kit: for agents.\n\n"
        "- [dsh](_sources/README.md.txt): A kit: for agents.\n"
        "- [Page](_sources/docs/page.md.txt): What it says.\n"
    )


def test_a_folder_without_mermaid_is_refused(
    script: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        script("build_site").main(["--mermaid", str(tmp_path)])
    assert ended.value.code == 2
    assert "there is no mermaid.esm.min.mjs in it" in capsys.readouterr().err
