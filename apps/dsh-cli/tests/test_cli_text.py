"""Text that may come from anywhere, on its way to a terminal."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsh.cli._out import ClosedPipe, Err, Out
from dsh.cli._table import table
from dsh.cli._text import neutralise, one_line
from dsh.cli.errors import CliError
from dsh.core import secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü 漢字 👩‍💻\n\t", "plain ü 漢字 👩‍💻\n\t"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("\x1b[2J\x9b2J", "\\x1b[2J\\x9b2J"),
        ("a\rb", "a\\x0db"),
        ("a\r\nb", "a\r\nb"),
        ("a\r\nb\x00", "a\nb\\x00"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("\ud800", "\\ud800"),
        ("\x7f", "\\x7f"),
    ],
)
def test_control_characters_are_written_out(text: str, shown: str) -> None:
    assert neutralise(text).replace("\r\n", "\n") == shown.replace("\r\n", "\n")


def test_one_line_is_one_short_line() -> None:
    assert one_line("  a\n\n  b\tc ") == "a b c"
    assert one_line("x" * 500) == "x" * 159 + "…"
    assert one_line("x" * 10 + " " * 5000 + "y") == "x" * 10 + "…"
    assert one_line("\x1b[31mred") == "\\x1b[31mred"


def test_columns_are_aligned() -> None:
    assert table(("A", "B"), [("x", "1"), ("long", "22")]) == "A     B\nx     1\nlong  22"


def test_stdout_collects_and_writes_once(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        out = Out(file)
        out.write("a")
        out.write("b\n")
        assert out.pending
        assert out.at_line_start
        assert (tmp_path / "out").read_text() == ""
        out.flush()
        assert not out.pending
    assert (tmp_path / "out").read_text() == "ab\n"


def test_text_is_encoded_for_its_stream(tmp_path: Path) -> None:
    for encoding, expected in (("latin-1", b"\xe9?"), ("ascii", "é漢".encode()), ("utf-8", None)):
        with (tmp_path / "out").open("w", encoding=encoding) as file:
            out = Out(file)
            out.write("é漢")
            out.flush()
        assert (tmp_path / "out").read_bytes() == (expected or "é漢".encode())


def test_secrets_do_not_get_out(tmp_path: Path) -> None:
    secrets.add("very-secret-value-1")
    with (tmp_path / "out").open("w", encoding="utf-8") as file:
        out, err = Out(file), Err(file)
        out.write("a very-secret-")
        out.write("value-1 b\n")
        out.flush()
        err.line("c very-secret-value-1")
    assert "very-secret" not in (tmp_path / "out").read_text()


def test_a_closed_pipe_and_a_full_disk_are_told_apart() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", closefd=True) as file:
        out = Out(file)
        with pytest.raises(ClosedPipe):
            out.line("x")
    if os.path.exists("/dev/full"):
        with open("/dev/full", "w", encoding="utf-8") as full:
            with pytest.raises(CliError, match="No space left"):
                Out(full).line("x")
            Err(full).line("ignored")


def test_no_stdout_at_all_is_an_error_and_no_stderr_is_none() -> None:
    with pytest.raises(CliError, match="closed"):
        Out(None).line("x")
    Err(None).line("x")
