"""What the files of the repository must not hold: other people's machines, and too many lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

HARD_LINES = 600
HARD_TEST_LINES = 1000

_PUBLIC = {"pypi.org", "files.pythonhosted.org", "test.pypi.org"}
_LOCK_HOST = re.compile(r"https?://([^/\"]+)")
_INDEX_HOST = re.compile(
    r"(?:index|registry|find.links)[\w.-]*[\"']?\s*[=:]?\s*[\[({\"']*\s*https?://(?P<host>[A-Za-z0-9][\w.:-]*)",
    re.IGNORECASE,
)
_HOME = re.compile(
    r"(?:/home/|/Users/|[A-Z]:\\+Users\\+)(?!(?:me|you|user|someone)\b)[A-Za-z0-9_.-]+|/root/[\w.]+"
)
_SKIPPED = {"__pycache__", "node_modules", "dist", "build", "site"}
_LARGEST = 1_000_000


def check_sizes(root: Path, folder: Path) -> Iterator[str]:
    """Check that the files of a folder stay short enough to read."""
    for path in sorted(folder.rglob("*.py")):
        lines = len(path.read_text(encoding="utf-8").splitlines())
        relative = path.relative_to(root)
        limit = HARD_TEST_LINES if "tests" in relative.parts else HARD_LINES
        if lines > limit:
            yield f"{relative}: {lines} lines, more than {limit}; split it by subject"


def check_texts(root: Path) -> Iterator[str]:
    """Check that no file names a private package index, or the home of whoever wrote it."""
    lock = root / "uv.lock"
    if lock.is_file():
        hosts = set(_LOCK_HOST.findall(lock.read_text(encoding="utf-8")))
        for host in sorted(hosts - _PUBLIC):
            yield f"uv.lock: records the host {host}; lock against the public index"
    for path in _files(root):
        if path == lock:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            where = f"{path.relative_to(root)}:{number}"
            for found in _INDEX_HOST.finditer(line):
                if found["host"] not in _PUBLIC:
                    yield f"{where}: names the package index {found['host']}; use the public one"
            for found in _HOME.finditer(line):
                yield f"{where}: names the home folder {found[0]}; write ~ or a made-up path"


def _files(root: Path) -> Iterator[Path]:
    """Yield the files of the repository; what tools keep beside them begins with a dot."""
    for folder, folders, names in os.walk(root):
        kept = [n for n in folders if n == ".ci" or not (n.startswith(".") or n in _SKIPPED)]
        folders[:] = sorted(kept)
        for name in sorted(names):
            path = Path(folder) / name
            if path.is_file() and path.stat().st_size <= _LARGEST:
                yield path
