"""`gates.py` runs the gates, and each of them fails when what it holds is broken."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import gates

ROOT = Path(__file__).resolve().parents[2]

# -- every gate, broken on purpose ---------------------------------------------------------------


@dataclass(frozen=True)
class Break:
    """A small sound workspace for one gate, and the change that the gate must not let pass.

    Args:
        change: Files to write over the sound ones.
        says: What the gate then prints, so that somebody knows where to look or what to run.
        files: The sound workspace.
        scripts: What of `scripts/` the gate's command needs.
        manifest: Whether the workspace has the manifest of this one.
        wheels: Wheels of this workspace to copy.
        before: A command that completes the sound workspace.
        needs: Module without which the gate cannot run here.
        sound: Whether the gate passes before the change; not where the small workspace is too
            small for that.
    """

    change: Mapping[str, str]
    says: str
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    scripts: tuple[str, ...] = ()
    manifest: bool = False
    wheels: tuple[str, ...] = ()
    before: str = ""
    needs: str = ""
    sound: bool = True


A = "packages/dsh-a/src/dsh/a/__init__.py"
MEMBERS = """[project]
name = "w"
version = "0"
requires-python = ">=3.11"
dependencies = [{}]

[tool.uv.workspace]
members = ["packages/*"]

[tool.uv.sources]
dsh-a = {{ workspace = true }}
"""
MEMBER = '[project]\nname = "dsh-a"\nversion = "1"\nrequires-python = ">=3.11"\n'
LAYERS = """[tool.importlinter]
root_package = "small"

[[tool.importlinter.contracts]]
name = "one way"
type = "layers"
layers = ["small.upper", "small.lower"]
"""
CASES = "| case | what | evidence |\n|---|---|---|\n| A-1 | it holds | {} |\n"
QUESTIONS = "| Who? | [`{0}`](../box.py) |\n" * 20
DOCUMENTED = {
    "packages/dsh-core/src/dsh/core/__init__.py": '"""Kernel."""\n\n__all__ = ["run"]\n\n\n'
    'def run() -> None:\n    """Run."""\n'
}
EVENT = '''"""A."""

from dataclasses import dataclass

from dsh.core import Context, Emit


@dataclass(frozen=True, slots=True)
class Happened(Emit, name="a/happened"):
    """It happened."""


def tell(ctx: Context) -> None:
    """Tell."""
    ctx.emit(Happened())
'''

BREAKS = {
    "ruff": Break({A: "import os\n"}, "imported but unused", {A: ""}, manifest=True),
    "format": Break({A: "x = [1,2]\n"}, "File would be reformatted", {A: ""}, manifest=True),
    "pyright": Break(
        {A: 'x: int = "one"\n'}, 'not assignable to declared type "int"', {A: ""}, manifest=True
    ),
    "mypy": Break(
        {A: 'x: int = "one"\n'},
        f"{A}:1: error: Incompatible types in assignment",
        {A: "", A.replace("__init__.py", "py.typed"): ""},
        ("check_types.py",),
        manifest=True,
    ),
    "gate-tests": Break(
        {"scripts/tests/test_a.py": "def test_a() -> None:\n    assert 1 == 2\n"},
        "FAILED scripts/tests/test_a.py::test_a",
        {"scripts/tests/test_a.py": "def test_a() -> None: ...\n"},
        manifest=True,
    ),
    "lock": Break(
        {"pyproject.toml": MEMBERS.format('"dsh-a"')},
        "uv lock",
        {"pyproject.toml": MEMBERS.format(""), "packages/dsh-a/pyproject.toml": MEMBER},
        before="uv lock --offline",
    ),
    "layering": Break(
        {"small/lower.py": "import small.upper\n"},
        "small.lower is not allowed to import small.upper",
        {
            "pyproject.toml": LAYERS,
            "small/__init__.py": "",
            "small/lower.py": "",
            "small/upper.py": "import small.lower\n",
        },
        needs="importlinter",
    ),
    "workspace": Break(
        {"packages/dsh-shell/README.md": "# dsh-shell\n"},
        "dsh-shell: README.md says next to nothing",
        scripts=("check_workspace.py", "workspace"),
    ),
    "conformance": Break(
        {"tests/conformance.md": CASES.format("")},
        "A-1 has neither a test nor a reason (void: ..., later: ...)",
        {"tests/conformance.md": CASES.format("later: soon")},
        ("check_conformance.py",),
    ),
    "orientation": Break(
        {"docs/orientation.md": QUESTIONS.format("Box.close")},
        "docs/orientation.md: Who? box.py has no Box.close",
        {
            "docs/orientation.md": QUESTIONS.format("Box.open"),
            "box.py": "class Box:\n    def open(self): ...\n",
        },
        ("orientation.py",),
    ),
    "generated": Break(
        {"docs/catalog/README.md": "Written by hand.\n"},
        "run: uv run python scripts/generate.py",
        {A: "", "packages/dsh-a/pyproject.toml": f"{MEMBER}dependencies = []\n"},
        ("generate.py", "catalog"),
        wheels=("dsh-core",),
        sound=False,
    ),
    "docstrings": Break(
        {path: text.replace('    """Run."""', "    ...") for path, text in DOCUMENTED.items()},
        "dsh.core.run has no docstring",
        DOCUMENTED,
        ("check_docstrings.py", "public_api"),
    ),
    "events": Break(
        {A: EVENT.replace("ctx.emit(Happened())", "ctx.owner")},
        "a/happened",
        {A: EVENT, "packages/dsh-a/pyproject.toml": f"{MEMBER}dependencies = []\n"},
        ("check_events.py", "event_checks", "catalog"),
        wheels=("dsh-core",),
    ),
    "docs": Break(
        {"README.md": "# Small\n\nSee [it](gone.md).\n"},
        "gone.md",
        {"README.md": "# Small\n\nSee [it](docs/README.md).\n", "docs/README.md": "# Index\n"},
        ("check_docs.py", "docs_check"),
    ),
    "site": Break(
        {"README.md": "# Small\n\nSee [it](#gone).\n"},
        "gone",
        {"README.md": "# Small\n\nSee [it](#small).\n"},
        ("build_site.py", "docs_site"),
        needs="sphinx",
    ),
}
PROGRAMS = {"ruff": "ruff", "format": "ruff", "pyright": "pyright", "mypy": "mypy", "lock": "uv"}


class Small:
    """A small workspace with the runner in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.copy("scripts/gates.py")
        (root / ".venv").symlink_to(ROOT / ".venv")

    def copy(self, path: str) -> None:
        source, target = ROOT / path, self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "tests"))
        else:
            shutil.copy(source, target)

    def write(self, files: Mapping[str, str]) -> None:
        for path, text in files.items():
            target = self.root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")

    def run(self, *command: str) -> tuple[int, str]:
        environment = os.environ | {"UV_OFFLINE": "1", "NO_COLOR": "1"}
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr


def test_every_gate_has_a_breaking_test() -> None:
    assert set(BREAKS) == {gate.name for gate in gates.GATES}


@pytest.mark.parametrize("name", BREAKS)
def test_a_gate_that_is_broken(tree: Any, name: str) -> None:
    case = BREAKS[name]
    program = shutil.which(PROGRAMS.get(name, "python"), path=str(Path(sys.executable).parent))
    if program is None or (case.needs and importlib.util.find_spec(case.needs) is None):
        pytest.skip(f"needs what the gate {name} runs, from the dependency group dev")
    small = Small(tree.root)
    if name != "workspace":  # the other gates get just what they look at
        for folder in ("packages", "apps"):
            shutil.rmtree(tree.root / folder)
    for script in (*case.scripts, "command_line.py"):
        small.copy(f"scripts/{script}")
    for wheel in case.wheels:
        small.copy(f"packages/{wheel}")
    if case.manifest:
        small.copy("pyproject.toml")
    small.write(case.files)
    if case.before:
        code, out = small.run(*gates.argv(case.before))
        assert code == 0, out
    command = (sys.executable, "scripts/gates.py", name)
    if case.sound:
        code, out = small.run(*command)
        assert code == 0, out
        assert "gates: all 1 passed in " in out
    small.write(case.change)
    code, out = small.run(*command)
    assert code == 1, out
    assert case.says in out
    assert f"again: uv run python scripts/gates.py {name}\n" in out


# -- the runner ----------------------------------------------------------------------------------


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs scripts, given by name, as gates."""

    def run(*names: str, **scripts: str) -> int:
        for name, code in scripts.items():
            (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
        rows = tuple(gates.Gate(name, "all", f"python {name}.py", "nothing") for name in scripts)
        monkeypatch.setattr(gates, "GATES", rows)
        monkeypatch.setattr(gates, "ROOT", tmp_path)
        return gates.main(list(names))

    return run


def shown(text: str) -> str:
    """Return what was printed, without how long things took."""
    return re.sub(r" +\d+\.\d s", " T s", text)


def test_only_failures_show_what_they_printed(runner: Any, capsys: Any) -> None:
    fine = "print('all is well')"
    broken = "import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)"
    assert runner(fine=fine, broken=broken) == 1
    assert shown(capsys.readouterr().out) == (
        "=== broken: python broken.py\nout\nerr\n"
        "fine         ok T s\nbroken       failed T s\n"
        "gates: 1 of 2 failed in T s; again: uv run python scripts/gates.py broken\n"
    )


def test_all_pass(runner: Any, capsys: Any) -> None:
    assert runner(one="", two="print('x')") == 0
    assert shown(capsys.readouterr().out) == (
        "one          ok T s\ntwo          ok T s\ngates: all 2 passed in T s\n"
    )


def test_gates_get_no_input_and_the_root_as_their_folder(runner: Any, tmp_path: Path) -> None:
    code = "import os, sys; assert sys.stdin.read() == ''; open('here', 'w').write(os.getcwd())"
    assert runner(one=code) == 0
    assert (tmp_path / "here").read_text() == str(tmp_path)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    outcome = gates.Runner(tmp_path).run(gates.Gate("a", "all", "no-such-program-at-all", "x"))
    assert outcome.code == 127
    assert "no-such-program-at-all" in outcome.output


def test_a_gate_whose_script_is_missing_fails(runner: Any, tmp_path: Path, capsys: Any) -> None:
    runner(one="")
    (tmp_path / "one.py").unlink()
    gates_of: Callable[[list[str]], int] = gates.main
    assert gates_of([]) == 1
    assert "one.py" in capsys.readouterr().out


# lets the first two start, then ends them one by one as the others come
RELEASE = """
import os
started = os.open("started", os.O_RDWR)
go = os.open("go", os.O_RDWR)
for number in range(4):
    os.read(started, 1)
    if number:
        os.write(go, b"x")
os.write(go, b"x")
os.read(os.open("done", os.O_RDONLY), 1)
"""


def test_no_more_than_two_run_at_once(runner: Any, tmp_path: Path) -> None:
    for name in ("started", "go", "done"):
        os.mkfifo(tmp_path / name)
    gate = (
        "import os\n"
        "log = os.open('log', os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
        "os.write(log, b's')\n"
        "os.write(os.open('started', os.O_WRONLY), b'x')\n"
        "os.read(os.open('go', os.O_RDONLY), 1)\n"
        "os.write(log, b'e')\n"
    )
    helper = subprocess.Popen(
        [sys.executable, "-c", RELEASE], cwd=tmp_path, stdin=subprocess.DEVNULL
    )
    try:
        assert runner(**dict.fromkeys(("a", "b", "c", "d"), gate)) == 0
        (tmp_path / "done").write_bytes(b"x")
        assert helper.wait(30) == 0
    finally:
        helper.kill()
    running, most = 0, 0
    for mark in (tmp_path / "log").read_text():
        running += 1 if mark == "s" else -1
        most = max(most, running)
    assert most == 2


def test_an_interrupt_ends_what_the_gates_have_started(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "alive")
    child = (
        "import os, signal, subprocess, sys\n"
        "pipe = os.open('alive', os.O_WRONLY)\n"
        "stubborn = 'import signal, threading; signal.signal(15, signal.SIG_IGN); '\n"
        "stubborn += 'print(1, flush=True); threading.Event().wait()'\n"
        "inner = subprocess.Popen([sys.executable, '-c', stubborn], pass_fds=[pipe],\n"
        "                         stdout=subprocess.PIPE)\n"
        "inner.stdout.readline()\n"
        "os.write(pipe, b'x')\n"
        "signal.pause()\n"
    )
    (tmp_path / "child.py").write_text(child, encoding="utf-8")
    code = (
        "import sys, pathlib, gates\n"
        f"gates.ROOT = pathlib.Path({str(tmp_path)!r})\n"
        "gates.GATES = tuple(gates.Gate(n, 'all', 'python child.py', '') for n in 'abc')\n"
        "sys.exit(gates.main([]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT / "scripts")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        with open(tmp_path / "alive", "rb", buffering=0) as alive:
            assert alive.read(1) == b"x"
            assert alive.read(1) == b"x"
            process.send_signal(signal.SIGINT)
            # the end of the pipe: nobody who had it open is left, stubborn or not
            assert alive.read(1) == b""
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "gates: interrupted\n")


# -- which gates ---------------------------------------------------------------------------------


def test_gates_and_groups_are_chosen_by_name() -> None:
    def chosen(*names: str) -> list[str]:
        return [gate.name for gate in gates.choose(gates.GATES, names)]

    every = [gate.name for gate in gates.GATES]
    assert chosen() == every
    assert chosen("ruff") == ["ruff"]
    assert set(chosen("code")) == {"ruff", "format", "pyright", "mypy"}
    assert set(chosen("doc-sync")) == {
        "generated",
        "docstrings",
        "events",
        "docs",
        "site",
        "orientation",
    }
    assert chosen("structure", "lock", *every) == every


def test_an_unknown_name() -> None:
    with pytest.raises(LookupError) as raised:
        gates.choose(gates.GATES, ["ruff", "rough"])
    message = str(raised.value)
    assert message.startswith("no gate or group rough; there are the gates gate-tests, ")
    assert "the groups" in message


def test_names_of_gates_and_groups_are_told_apart() -> None:
    names = [gate.name for gate in gates.GATES]
    assert len(names) == len(set(names))
    assert not set(names) & set(gates.groups(gates.GATES))


def test_contributing_lists_the_gates(capsys: Any) -> None:
    assert gates.main(["--list"]) == 0
    listed = capsys.readouterr().out
    told = "CONTRIBUTING.md: put what `python scripts/gates.py --list` prints into its table"
    assert listed in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), told


def test_every_script_of_a_gate_exists() -> None:
    for gate in gates.GATES:
        for word in gate.command.split():
            if word.endswith(".py"):
                assert (ROOT / word).is_file(), gate.name
