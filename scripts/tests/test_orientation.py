"""The questions about where things are, and the gate that keeps their answers true."""

from __future__ import annotations

from pathlib import Path

import pytest

import orientation

PAGE = "docs/orientation.md"


def page(tmp_path: Path, row: str, *, rows: int = 20) -> Path:
    """A workspace with one module and a page about it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "_box.py").write_text(
        "class Box:\n    lid = 1\n\n    def open(self): ...\n"
    )
    (tmp_path / PAGE).write_text("\n".join([row] * rows) + "\n")
    return tmp_path


def row(symbol: str, file: str = "../src/_box.py") -> str:
    return f"| Who opens it? | [`{symbol}`]({file}) |"


@pytest.mark.parametrize("symbol", ["Box", "Box.open", "Box.lid", "_box.py"])
def test_an_answer_that_is_there(tmp_path: Path, symbol: str) -> None:
    assert orientation.main(["--check", "--root", str(page(tmp_path, row(symbol)))]) == 0


@pytest.mark.parametrize(
    "wrong", [row("Box.close"), row("open"), row("Box", "../src/_chest.py"), row("Lid")]
)
def test_an_answer_that_leads_nowhere(
    tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert orientation.main(["--check", "--root", str(page(tmp_path, wrong))]) == 1
    assert "Who opens it?" in capsys.readouterr().out


def test_fewer_than_twenty_are_too_few(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="19 questions"):
        orientation.main(["--check", "--root", str(page(tmp_path, row("Box"), rows=19))])


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("_box.py", True),
        ("src/_box.py", True),
        ("open()", True),
        ("Box.open", True),
        ("", False),
        ("_chest.py", False),
        ("close", False),
        ("Box", False),
    ],
)
def test_what_counts_as_an_answer(tmp_path: Path, answer: str, right: bool) -> None:
    questions = orientation.read(page(tmp_path, row("Box.open")))
    said = orientation.ask(questions, lambda prompt: answer)
    assert said.startswith(f"{20 if right else 0} of 20 right")
