"""The pytest plugin in projects of other people, each a pytest run of its own."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from dsh.testkit import _pytest_plugin

README = Path(__file__).parent.parent / "README.md"
_BLOCK = re.compile(r"^```python[^\n]*\n# (?P<name>\w+\.py)\n(?P<code>.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Run:
    code: int
    output: str

    def counts(self, **expected: int) -> None:
        """Fail unless the summary says exactly this."""
        last = self.output.strip().splitlines()[-1]
        found = {word.rstrip("s"): int(n) for n, word in re.findall(r"(\d+) (\w+)", last)}
        found = {
            word: n for word, n in found.items() if word in ("passed", "failed", "error", "skipped")
        }
        assert found == expected, self.output


@dataclass(frozen=True)
class Project:
    """A folder with a few files, and pytest run in it."""

    folder: Path

    def write(self, **files: str) -> None:
        for name, code in files.items():
            (self.folder / f"{name}.py").write_text(code, encoding="utf-8")

    def pytest(self, *args: str, mode: str = "auto", **environ: str) -> Run:
        options = ["-q", "-p", "no:cacheprovider", "-W", "error", "-o", f"anyio_mode={mode}"]
        # imports the whole of hypothesis at the end of a run, which can trip over a fault of
        # Python 3.11 where tests left failing tasks behind
        options += ["-p", "no:hypothesispytest"]
        strict = ["--strict-markers", "--strict-config", "-c", "pytest.ini", "--rootdir", "."]
        (self.folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("DSH_", "PYTEST_"))}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *strict, *args],
            cwd=self.folder,
            env={**kept, **environ},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Run(done.returncode, done.stdout + done.stderr)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def readme_files() -> dict[str, str]:
    """Return the files that the README shows, by name."""
    return {
        found["name"].removesuffix(".py"): found["code"]
        for found in _BLOCK.finditer(README.read_text(encoding="utf-8"))
    }


def test_the_project_of_the_readme(project: Project) -> None:
    files = readme_files()
    assert {"weather", "test_weather", "gate", "test_gate"} <= set(files)
    project.write(**{name: code for name, code in files.items() if "my_wheel" not in code})
    run = project.pytest()
    run.counts(passed=14)


def test_whatever_asserts_is_explained() -> None:
    folder = Path(_pytest_plugin.__file__).parent
    asserting = {
        f"dsh.testkit.{path.stem}"
        for path in folder.glob("*.py")
        if any(
            isinstance(node, ast.Assert) for node in ast.walk(ast.parse(path.read_text("utf-8")))
        )
    }
    # pytest rewrites its plugins by itself
    asserting.discard(_pytest_plugin.__name__)
    assert asserting <= set(_pytest_plugin.EXPLAINED)


def test_a_case_that_fails_says_what_differs(project: Project) -> None:
    project.write(
        test_loop="""
import pytest
from dsh.agent.loopkit import Policies
from dsh.core import entry_points
from dsh.testkit.loop_contract import LoopContract


async def never(self, turn):
    return False


@pytest.fixture(autouse=True)
def broken(monkeypatch):
    monkeypatch.setattr(Policies, "stops_for_good", never)


class TestLoop(LoopContract):
    (loop,) = (p.load() for p in entry_points("dsh.plugins") if p.name.endswith("-loop"))
""",
    )
    run = project.pytest("-k", "asyncio-a-terminal-stop-discards-steering")
    assert run.code == 1
    assert "+  where" in run.output, run.output


def test_importing_the_plugin_imports_nothing_of_the_product() -> None:
    code = (
        "import sys, dsh.testkit._pytest_plugin\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in"
        " ('dsh', 'pydantic', 'anyio')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == str(["dsh", "dsh.testkit", "dsh.testkit._pytest_plugin"])


def test_a_project_that_has_nothing_to_do_with_it(project: Project) -> None:
    project.write(
        conftest="""
import sys
import pytest

@pytest.fixture
def app():
    return "mine"

def pytest_sessionfinish(session):
    assert "dsh.core" not in sys.modules
    assert "pydantic" not in sys.modules
""",
        test_mine="""
import pytest

@pytest.fixture
def agent(app):
    return app.upper()

def test_fixtures_of_ones_own_win(app, agent):
    assert (app, agent) == ("mine", "MINE")

async def test_async():
    pass
""",
    )
    run = project.pytest()
    run.counts(passed=3)
    assert "warning" not in run.output


PROGRAMS = """
import pytest

@pytest.mark.needs_program("python3")
def test_there(): pass

@pytest.mark.needs_program("no-such-program-anywhere", "nor-this-one")
def test_missing(): raise RuntimeError("must not run")
"""


def test_the_marker(project: Project) -> None:
    project.write(test_programs=PROGRAMS)
    run = project.pytest("-ra")
    run.counts(passed=1, skipped=1)
    assert "needs no-such-program-anywhere, nor-this-one" in run.output
    run = project.pytest(DSH_REQUIRE_PROGRAMS="1")
    run.counts(passed=1, error=1)
    assert "no-such-program-anywhere" in run.output


TROUBLE = """
import anyio
import pytest

from dsh.core import Plugin
from dsh.testkit import needs_program

async def test_unmarked_and_strict(agent): pass

async def boom():
    raise ValueError("boom in the background")

async def test_contained(app):
    app.ctx.spawn(boom)
    await anyio.wait_all_tasks_blocked()

async def stop():
    pytest.fail("stop in the background")

async def test_outcome_in_a_task(app):
    app.ctx.spawn(stop)
    await anyio.wait_all_tasks_blocked()

async def test_fails(agent):
    raise RuntimeError("the test itself")

async def test_violation(spine):
    from dsh.invariants import Invariants
    def install(ctx, report):
        try:
            report.check(False, "the rule is broken")
        except Exception:
            pass
    await spine.app[Invariants].register(spine.app.ctx, "mine", install)

async def test_skips_inside(spine):
    needs_program("no-such-program-anywhere")

async def test_the_next_one_is_fine(agent, scripted, wire_server): pass
"""


def test_trouble_is_told_where_it_belongs_and_nothing_hangs(project: Project) -> None:
    project.write(test_trouble=TROUBLE)
    run = project.pytest(mode="strict")
    for words in (
        "root: spawn boom: ValueError: boom in the background",
        "stop in the background",
        "RuntimeError: the test itself",
        "mine: the rule is broken",
    ):
        assert words in run.output
    # each test twice, on asyncio and on trio; those in trouble behind the test pass and then err
    run.counts(failed=2, passed=10, skipped=2, error=6)
