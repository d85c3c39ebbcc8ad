"""Names of folders."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session_persistence_jsonl._names import encode_segment, project_folder

SAFE = re.compile(r"[a-z0-9._~-]+")


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("0f8e2b1c-6f0a-4c1e-9a53-1f3a0c1d2e3f", "0f8e2b1c-6f0a-4c1e-9a53-1f3a0c1d2e3f"),
        ("../x", "~002e.~002fx"),
        ("a/b", "a~002fb"),
        ("a\\b", "a~005cb"),
        ("/etc", "~002fetc"),
        (".", "~002e"),
        ("..", "~002e~002e"),
        (".hidden", "~002ehidden"),
        ("a.b", "a.b"),
        ("end.", "end~002e"),
        ("A", "~0041"),
        ("~", "~007e"),
        ("con", "~0063on"),
        ("nul.txt", "~006eul.txt"),
        ("console", "console"),
        ("a b\x00", "a~0020b~0000"),
        ("ä😀", "~00e4~d83d~de00"),
        ("\ud800", "~d800"),
    ],
)
def test_an_id_has_a_name_that_means_nothing_to_a_system(session_id: str, segment: str) -> None:
    # case: JL-02
    assert encode_segment(session_id) == segment


def test_an_empty_id_has_no_name() -> None:
    # case: JL-02
    with pytest.raises(ValueError, match="empty"):
        encode_segment("")


IDS = st.text(st.characters() | st.sampled_from(".~/\\acnou0:-\ud800"), min_size=1)


@given(IDS, IDS)
def test_no_two_ids_share_a_name(one: str, other: str) -> None:
    # case: JL-02
    names = encode_segment(one), encode_segment(other)
    assert (names[0] == names[1]) == (one == other)
    assert (names[0].casefold() == names[1].casefold()) == (one == other)
    for name in names:
        assert SAFE.fullmatch(name)
        assert len(name) <= 255
        assert name[0] != "." != name[-1]


def test_long_ids_differ_in_their_digest() -> None:
    one, other = "x" * 500 + "1", "x" * 500 + "2"
    assert encode_segment(one) != encode_segment(other)
    assert len(encode_segment(one)) <= 255
    assert "~~" not in encode_segment("~" * 20)


@pytest.mark.parametrize(
    ("cwd", "folder"),
    [
        ("/home/me/my project", "--home-me-my~0020project--"),
        ("/home/me//x", "--home-me-x--"),
        ("C:\\Users\\me", "--C-Users-me--"),
        ("/", "--root--"),
        ("/ä", "--~00e4--"),
        (None, "_no-cwd"),
    ],
)
def test_a_directory_has_a_name_that_people_recognise(cwd: str | None, folder: str) -> None:
    assert project_folder(cwd) == folder


def test_a_long_directory_has_a_name_all_the_same() -> None:
    assert len(project_folder("/x" * 500)) == 255
