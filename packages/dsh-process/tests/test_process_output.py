"""Collecting output: bounds, spill files, decoding, increments, secrets, failing disks."""

from __future__ import annotations

import errno
import itertools
import os
import stat
import subprocess
import sys
import tracemalloc
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.core import secrets
from dsh.process import OutputCollector, SpillFile, SpillStore, Supervisor
from dsh.process.testing import run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpillStore]:
    made = SpillStore(tmp_path / "spill")
    yield made
    made.close()


def numbered(count: int) -> bytes:
    return b"".join(b"line %d\n" % n for n in range(1, count + 1))


def test_exactly_at_the_cap_is_whole(store: SpillStore) -> None:
    # case: BASH-07
    collector = OutputCollector(max_bytes=500, store=store)
    collector.feed(b"x" * 300)
    collector.feed(b"y" * 200)
    collector.finish()
    shown = collector.snapshot()
    assert shown.text == "x" * 300 + "y" * 200
    assert (shown.truncated, shown.spill_path) == (False, None)
    assert store.directory is None


def test_overflow_keeps_the_end_and_spills_the_whole(store: SpillStore) -> None:
    # case: BASH-07
    data = numbered(200)
    collector = OutputCollector(max_bytes=500, store=store)
    for start in range(0, len(data), 37):
        collector.feed(data[start : start + 37])
    collector.finish()
    shown = collector.snapshot()
    assert len(shown.text.encode()) <= 500
    assert shown.text.endswith("line 200\n")
    assert "line 1\n" not in shown.text
    assert shown.truncated
    assert shown.spill_path is not None
    path = Path(shown.spill_path)
    assert path.read_bytes() == data
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_one_chunk_larger_than_the_cap_keeps_its_own_tail(store: SpillStore) -> None:
    collector = OutputCollector(max_bytes=10, store=store)
    collector.feed(b"0123456789abcdef")
    assert collector.snapshot().text == "6789abcdef"
    assert collector.tail() == b"6789abcdef"


def test_spill_names_cannot_be_guessed_and_links_are_not_followed(
    tmp_path: Path, store: SpillStore
) -> None:
    first, second = store.create("stdout"), store.create("stdout")
    assert first.path != second.path
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        SpillFile(store, link)
    first.close()
    second.close()


def test_closing_the_store_removes_everything(tmp_path: Path) -> None:
    store = SpillStore(tmp_path / "spill")
    file = store.create("stdout")
    file.write(b"x")
    file.close()
    store.close()
    store.close()
    assert list((tmp_path / "spill").iterdir()) == []


def test_the_limit_of_one_stream_discards_its_file(store: SpillStore) -> None:
    collector = OutputCollector(max_bytes=100, max_spill_bytes=1000, store=store)
    for _ in range(20):
        collector.feed(b"x" * 99 + b"\n")
    collector.finish()
    shown = collector.snapshot()
    assert (shown.truncated, shown.spill_path) == (True, None)
    assert shown.spill_note is not None
    assert "1000 bytes" in shown.spill_note
    assert store.directory is not None
    assert list(store.directory.iterdir()) == []
    assert store.used == 0


def test_the_limit_of_all_streams_together(tmp_path: Path) -> None:
    store = SpillStore(tmp_path, max_total_bytes=1000)
    one, two = (OutputCollector(max_bytes=10, store=store) for _ in range(2))
    one.feed(b"x" * 799 + b"\n")
    two.feed(b"y" * 799 + b"\n")
    assert one.snapshot().spill_path is not None
    shown = two.snapshot()
    assert shown.spill_path is None
    assert shown.spill_note is not None
    assert "together" in shown.spill_note
    store.close()


def test_a_directory_that_cannot_be_made_costs_only_the_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    collector = OutputCollector(max_bytes=10, store=SpillStore(tmp_path / "file"))
    collector.feed(b"x" * 100)
    collector.finish()
    assert collector.snapshot().text == "x" * 10
    assert collector.snapshot().spill_note is not None


@contextmanager
def tiny_disk(path: Path) -> Generator[Path]:
    """A file system of 64 KiB."""
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(path)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", str(path)], check=True)


async def test_a_full_disk_costs_only_the_file(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        async with Supervisor(spill_dir=disk) as supervisor:
            done = await run(supervisor, ["seq", "200000"], max_output_bytes=1000)
            shown = done.stdout.snapshot()
            assert done.ending.exit_code == 0
            assert shown.text.endswith("200000\n")
            assert (shown.truncated, shown.spill_path) == (True, None)
            assert shown.spill_note == "the disk failed: No space left on device"
            assert supervisor.spill.directory is not None
            assert list(supervisor.spill.directory.iterdir()) == []


class LateDisk(SpillStore):
    """A store whose files report the failure only when they are closed, as NFS does."""

    def create(self, stream: str) -> SpillFile:
        file = super().create(stream)

        def close() -> None:
            SpillFile.close(file)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        file.close = close
        return file


async def test_a_failing_close_withholds_the_path(tmp_path: Path) -> None:
    # case: BASH-08
    collector = OutputCollector(max_bytes=10, store=LateDisk(tmp_path))
    collector.feed(b"x" * 100)
    assert collector.snapshot().spill_path is not None
    collector.finish()
    shown = collector.snapshot()
    assert (shown.truncated, shown.spill_path, shown.text) == (True, None, "x" * 10)


def test_reads_deliver_each_byte_once() -> None:
    # case: BASH-11
    collector = OutputCollector()
    collector.feed(b"first")
    one = collector.read_from(0)
    collector.feed(b"second")
    two = collector.read_from(one.next_offset)
    three = collector.read_from(two.next_offset)
    assert [one.text, two.text, three.text] == ["first", "second", ""]
    assert not any(read.lossy for read in (one, two, three))


def test_a_read_that_comes_too_late_is_lossy() -> None:
    collector = OutputCollector(max_bytes=10)
    collector.feed(b"0123456789")
    first = collector.read_from(0)
    collector.feed(b"abcdefghijKLMNO")
    second = collector.read_from(first.next_offset)
    assert (second.text, second.lossy, second.next_offset) == ("fghijKLMNO", True, 25)
    assert not collector.read_from(20).lossy


def test_a_character_cut_by_a_read_waits_for_its_end() -> None:
    collector = OutputCollector()
    euro = "€".encode()
    collector.feed(b"a" + euro[:2])
    first = collector.read_from(0)
    assert (first.text, first.next_offset, first.undecodable) == ("a", 1, False)
    collector.feed(euro[2:] + b"b")
    assert collector.read_from(first.next_offset).text == "€b"


def test_a_character_that_never_ends_is_replaced_at_the_end() -> None:
    collector = OutputCollector()
    collector.feed(b"a\xe2\x82")
    assert collector.read_from(0).text == "a"
    collector.finish()
    last = collector.read_from(1)
    assert (last.text, last.undecodable, last.next_offset) == ("\ufffd", True, 3)


def test_a_window_does_not_begin_inside_a_character() -> None:
    collector = OutputCollector(max_bytes=5)
    collector.feed("ééééé".encode())
    shown = collector.snapshot()
    assert (shown.text, shown.undecodable) == ("éé", False)


def test_bytes_that_are_not_text_are_replaced_and_said() -> None:
    # case: F-32
    collector = OutputCollector()
    collector.feed(b"ok \xff\xfe\x00 \xc3")
    collector.finish()
    shown = collector.snapshot()
    assert shown.undecodable
    assert shown.text == "ok \ufffd\ufffd\x00 \ufffd"
    genuine = OutputCollector()
    genuine.feed("a real \ufffd".encode())
    assert not genuine.snapshot().undecodable


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_increments_join_to_the_decoded_whole(data: bytes, cuts: list[int]) -> None:
    collector = OutputCollector()
    edges = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    text, offset = "", 0
    for start, end in itertools.pairwise(edges):
        collector.feed(data[start:end])
        read = collector.read_from(offset)
        text, offset = text + read.text, read.next_offset
    collector.finish()
    text += collector.read_from(offset).text
    assert text == data.decode("utf-8", "replace")


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=30), st.integers(1, 50))
def test_the_tail_is_the_tail(chunks: list[bytes], cap: int) -> None:
    collector = OutputCollector(max_bytes=cap)
    for chunk in chunks:
        collector.feed(chunk)
    whole = b"".join(chunks)
    assert collector.tail() == whole[-cap:]
    assert collector.total == len(whole)
    assert collector.snapshot().truncated == (len(whole) > cap)


SECRET = "sk-live-0123456789abcdef"


def test_secrets_are_masked_in_texts_and_in_the_file(store: SpillStore) -> None:
    # case: F-44
    secrets.add(SECRET)
    collector = OutputCollector(max_bytes=100, store=store)
    for piece in (b"x" * 90 + b"\nkey sk-live-01234", b"56789abcdef\n", b"y" * 60 + b"\n"):
        collector.feed(piece)
    collector.finish()
    shown = collector.snapshot()
    assert f"key {secrets.MASK}\n" in shown.text
    assert SECRET not in shown.text
    assert shown.spill_path is not None
    spilled = Path(shown.spill_path).read_text("utf-8")
    assert SECRET not in spilled
    assert spilled == "x" * 90 + f"\nkey {secrets.MASK}\n" + "y" * 60 + "\n"


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_the_rest_of_a_secret_cut_by_a_read_is_masked(cut: int) -> None:
    secrets.add(SECRET)
    collector = OutputCollector()
    collector.feed(f"key {SECRET[:cut]}".encode())
    first = collector.read_from(0)
    collector.feed(f"{SECRET[cut:]} and {SECRET}.".encode())
    second = collector.read_from(first.next_offset)
    assert second.text == f"{secrets.MASK} and {secrets.MASK}."


@pytest.mark.parametrize("cut", range(1, len(SECRET)))
def test_a_secret_cut_by_the_window_is_masked(cut: int) -> None:
    secrets.add(SECRET)
    data = f"{SECRET}{SECRET} end".encode()
    collector = OutputCollector(max_bytes=len(SECRET) - cut + 4)
    collector.feed(data)
    assert collector.snapshot().text == f"{secrets.MASK} end"


async def test_two_hundred_megabytes(supervisor: Supervisor) -> None:
    # case: F-35
    tracemalloc.start()
    try:
        done = await run(supervisor, ["bash", "-c", "yes | head -c 200M"])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    shown = done.stdout.snapshot()
    assert done.stdout.total == 200 << 20
    assert peak < 4 << 20
    assert shown.text.endswith("y\ny\n")
    assert len(shown.text) == 64_000
    assert shown.truncated
    assert shown.spill_note is not None


async def test_within_the_limit_the_full_text_is_on_disk(supervisor: Supervisor) -> None:
    # case: F-35
    done = await run(supervisor, ["bash", "-c", "yes | head -c 20M"])
    path = done.stdout.snapshot().spill_path
    assert path is not None
    assert Path(path).stat().st_size == 20 << 20  # noqa: ASYNC240


async def test_binary_output(supervisor: Supervisor) -> None:
    # case: F-32
    done = await run(
        supervisor, ["head", "-c", "300000", "/dev/urandom"], env={"LANG": "C", "PATH": os.defpath}
    )
    shown = done.stdout.snapshot()
    assert done.stdout.total == 300_000
    assert shown.undecodable
    assert shown.text.encode("utf-8")
    assert len(done.stdout.tail()) == 64_000


async def test_the_host_speaks_c(anyio_backend: str) -> None:
    # case: F-32
    subject = (
        "import anyio, sys\n"
        "from dsh.process import Supervisor\n"
        "from dsh.process.testing import run\n"
        "async def main():\n"
        "    async with Supervisor() as s:\n"
        "        r = await run(s, ['printf', 'caf\\\\xc3\\\\xa9 \\\\xff'])\n"
        "        print(ascii(r.stdout.snapshot().text))\n"
        "        r = await run(s, ['printf', '%s', 'caf\\xe9'])\n"
        "        print(r.stdout.tail())\n"
        f"anyio.run(main, backend={anyio_backend!r})\n"
    )
    async with Supervisor() as supervisor:
        env = {"LANG": "C", "LC_ALL": "C", "PATH": os.environ["PATH"], "PYTHONCOERCECLOCALE": "0"}
        done = await run(supervisor, [sys.executable, "-c", subject], env=env)
    assert done.ending.exit_code == 0
    assert done.stdout.snapshot().text == "'caf\\xe9 \\ufffd'\nb'caf\\xc3\\xa9'\n"
