"""Importing a wheel does nothing but import it: no socket, no file, no output, no trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.testkit import needs_program

ROOT = Path(__file__).resolve().parents[1]
WHEELS = sorted(
    path.name for path in [*ROOT.glob("packages/*/src/dsh/*"), *ROOT.glob("apps/*/src/dsh/*")]
)

# programs that run when they are imported: their folders' `python -m` and the process helper
IMPORT = """
import importlib, pkgutil, sys

def load(wheel):
    module = importlib.import_module(f"dsh.{wheel}")
    for inner in pkgutil.walk_packages(module.__path__, f"dsh.{wheel}."):
        if not inner.name.endswith(".__main__"):
            importlib.import_module(inner.name)
"""

PROBE = """
import gc, json, logging, os, signal, socket, sys, threading

class Refused(socket.socket):
    def __new__(cls, *args, **kwargs):
        raise AssertionError("a socket was opened")

def refuse(event, arguments):
    if event.startswith("socket."):
        raise AssertionError(event)
    if event in {"subprocess.Popen", "os.fork", "os.exec", "os.posix_spawn"}:
        raise AssertionError(event)

def state():
    mask = os.umask(0)
    os.umask(mask)
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "umask": mask,
        "descriptors": sorted(os.listdir("/dev/fd")),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "signals": [repr(signal.getsignal(n)) for n in range(1, signal.NSIG)],
        "loggers": [repr(logging.root.handlers), logging.root.level],
        "hooks": [repr(sys.excepthook), repr(sys.unraisablehook), repr(threading.excepthook)],
        "limits": [sys.getrecursionlimit(), repr(gc.get_threshold()), sys.path],
    }

# what the event loop libraries do at their import is their own affair; trio looks libc up
import anyio, asyncio, trio
socket.socket = Refused
sys.addaudithook(refuse)
before = state()
load(sys.argv[1])
after = state()
changed = {key: [before[key], after[key]] for key in before if before[key] != after[key]}
print(json.dumps(changed))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def command(home: Path, code: str, *arguments: str) -> dict[str, Any]:
    """Return how to run Python in an empty home that is also where it stands."""
    variables = {
        "HOME": str(home),
        "TMPDIR": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
        "LANG": "C.UTF-8",
    }
    args = [sys.executable, "-W", "error", "-c", code, *arguments]
    return {"args": args, "cwd": home, "env": variables}


# case: F-47
@pytest.mark.parametrize("wheel", WHEELS)
def test_importing_a_wheel_leaves_no_trace(home: Path, wheel: str) -> None:
    done = subprocess.run(
        **command(home, IMPORT + PROBE, wheel), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1, f"output: {done.stdout}"
    assert json.loads(done.stdout) == {}
    assert os.listdir(home) == []


# case: F-47
def test_importing_every_wheel_makes_no_network_call(home: Path, tmp_path: Path) -> None:
    strace = needs_program("strace")
    code = IMPORT + f"for wheel in {WHEELS}: load(wheel)\n"
    trace = tmp_path / "trace"

    def traced(code: str) -> list[str]:
        run = command(home, code)
        run["args"] = [strace, "-f", "-qq", "-e", "trace=network", "-o", str(trace), *run["args"]]
        done = subprocess.run(**run, capture_output=True, text=True, check=False)
        if "Operation not permitted" in done.stderr:
            pytest.skip("strace may not trace here")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        return re.findall(r"^\d+\s+(\w+\(.*)$", trace.read_text(), re.MULTILINE)

    (seen,) = traced("import socket; socket.socket().close()")
    assert seen.startswith("socket(AF_INET")
    assert traced(code) == []
    assert os.listdir(home) == []


# case: F-47
def test_the_public_face_alone_is_enough(home: Path) -> None:
    """Everything `__all__` promises is there, also where it is loaded on first use."""
    code = IMPORT + (
        "for wheel in sys.argv[1:]:\n"
        "    module = importlib.import_module('dsh.' + wheel)\n"
        "    names = module.__all__\n"
        "    assert len(names) == len(set(names)), (wheel, names)\n"
        "    missing = [name for name in names if not hasattr(module, name)]\n"
        "    assert not missing, (wheel, missing)\n"
        "    hidden = [name for name in names if name not in dir(module)]\n"
        "    assert not hidden, (wheel, hidden)\n"
    )
    done = subprocess.run(
        **command(home, code, *WHEELS), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
