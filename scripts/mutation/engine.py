"""Runs mutmut over a target, in a folder laid out as mutmut wants it.

mutmut wants one project: a folder `src` and tests. So each target has a bench below `.mutation`
with copies of both. What is mutated lies before the installed wheels on the path; everything else
comes from the workspace.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import json
import os
import resource
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from mutation import wording
from mutation.results import inside
from mutation.targets import TEST_TOOLS, Target
from mutation.wording import is_meaningless

LIMITS_S = (10, 30)
"""Seconds a test may take in each pass; then the mutant counts as hanging.

The slowest tests take half a second and four, on a machine that does nothing else.
"""

MEMORY_BYTES = 6 * 1024**3
"""Address space of a run; a mutant that takes more is killed by its `MemoryError`."""


PRELOADED = "preloaded.txt"
_LIBRARIES = (
    "pydantic",
    "pydantic.dataclasses",
    "anyio.pytest_plugin",
    "anyio._backends._asyncio",
    "anyio._backends._trio",
    "hypothesis.strategies",
    "_hypothesis_pytestplugin",
    "jsonschema",
    "pytest_timeout",
)
"""What a mutant of the second pass finds imported, because nothing in it is mutated."""

_TWICE = """
import os, sys
import pytest
class Names:
    def pytest_collection_modifyitems(self, items):
        found.append({item.nodeid for item in items})
found = []
sys.stdout = open(os.devnull, "w")
for _ in range(2):
    pytest.main(["--collect-only", "-q", "--rootdir=.", *sys.argv[1:]], plugins=[Names()])
print(*sorted(found[0] - found[1]), sep="\\n", file=sys.stderr)
"""
"""Prints the tests that have another name when they are collected again in one process."""


def lay_out(target: Target, root: Path, *, everything: bool = False) -> Path:
    """Bring the bench of a target up to date and return its folder.

    Unchanged sources keep the times that mutmut knows them by, so results are kept for them.

    Args:
        target: The target.
        root: The workspace.
        everything: Whether each mutant imports the code anew, so that what runs only then counts.
    """
    bench = root / ".mutation" / target.name
    made_by = hashlib.sha256(Path(wording.__file__).read_bytes())
    made_by.update(_version("mutmut").encode())
    stamp = bench / "made-by"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != made_by.hexdigest():
        # the mutants would be numbered anew, and mutmut knows its results by number
        shutil.rmtree(bench, ignore_errors=True)
        bench.mkdir(parents=True)
        stamp.write_text(made_by.hexdigest(), encoding="utf-8")
    for wheel in target.wheels:
        _mirror(root / wheel / "src", bench / "src")
    wanted = {
        path.relative_to(root / wheel / "src")
        for wheel in target.wheels
        for path in (root / wheel / "src").rglob("*.py")
    }
    for path in (bench / "src").rglob("*.py"):
        if path.relative_to(bench / "src") not in wanted:
            path.unlink()
            (bench / "mutants" / path.relative_to(bench)).unlink(missing_ok=True)
    (bench / PRELOADED).write_text("\n".join(_LIBRARIES) + "\n", encoding="utf-8")
    shared = ["conftest.py", "packages/conftest.py"]
    readmes = [f"{wheel}/README.md" for wheel in target.wheels]
    _forget_changed_tests(target, root, bench)
    for place in (*shared, *readmes, *target.tests):
        for base in (bench, bench / "mutants"):
            _replace(root / place, base / place)
    (bench / "pyproject.toml").write_text(
        _manifest(target, root, [*shared, *readmes, *target.tests], everything=everything),
        encoding="utf-8",
    )
    return bench


def _forget_changed_tests(target: Target, root: Path, bench: Path) -> None:
    """Have mutmut look again at what changed tests reach; it looks at new ones only."""
    record = bench / "mutants" / "mutmut-stats.json"
    if not record.is_file():
        return
    files = [path for place in target.tests for path in _test_files(root / place)]
    places = [path.relative_to(root) for path in files]
    changed = tuple(
        f"{place.as_posix()}::"
        for place in places
        if (bench / place).is_file() and (bench / place).read_bytes() != (root / place).read_bytes()
    )
    stats = json.loads(record.read_text(encoding="utf-8"))
    times: dict[str, float] = stats["duration_by_test"]
    stats["duration_by_test"] = {
        test: time for test, time in times.items() if not changed or not test.startswith(changed)
    }
    record.write_text(json.dumps(stats), encoding="utf-8")


def _test_files(place: Path) -> list[Path]:
    return [place] if place.is_file() else sorted(place.rglob("*.py"))


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def _mirror(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        copy = target / path.relative_to(source)
        if path.is_dir() or path.suffix == ".pyc":
            continue
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)


def _replace(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copyfile(source, target)


def _manifest(target: Target, root: Path, copied: Sequence[str], *, everything: bool) -> str:
    """Return the settings of mutmut, and those of pytest that the workspace has."""
    with (root / "pyproject.toml").open("rb") as file:
        options: dict[str, Any] = tomllib.load(file)["tool"]["pytest"]["ini_options"]
    pytest = {key: value for key, value in options.items() if key != "testpaths"}
    pytest["filterwarnings"] += ["ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    mutmut = {
        "source_paths": ["src"],
        "only_mutate": [f"src/dsh/{pattern}" for pattern in target.mutate],
        "do_not_mutate": [TEST_TOOLS],
        "also_copy": list(copied),
        "pytest_add_cli_args": ["--timeout-method=thread"],
        "pytest_add_cli_args_test_selection": list(target.tests),
        # forked from a process that has run no test, so that nothing built on first use is there
        "process_isolation": "forkserver",
        "forkserver_warmup": "import" if everything else "collect",
        "preload_modules_file": PRELOADED,
        "timeout_multiplier": 3.0,
        "timeout_constant": 20.0,
        "track_dependencies": False,
        "use_git_change_detection": False,
        "on_dependency_change": "ignore",
    }
    sections = {"tool.mutmut": mutmut, "tool.pytest.ini_options": pytest}
    # strings, numbers, truth values and lists of strings are written alike in JSON and in TOML
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rows.items())
        for name, rows in sections.items()
    )


def chosen_tests(target: Target, *, every: bool) -> str:
    """Return the options for pytest of a pass: the first leaves out what survivors meet later.

    Args:
        target: The target.
        every: Whether this is the second pass.
    """
    left_out = target.never if every else target.never + target.later
    options = [f"--timeout={LIMITS_S[every]}"] + ([] if every else [f'-k "{target.first}"'])
    return " ".join([*options, *(f"--deselect={target.tests[0]}/{name}" for name in left_out)])


def run(bench: Path, *, names: Sequence[str] = (), options: str) -> None:
    """Test what has no result yet, or the mutants of these names anew.

    Args:
        bench: The folder that was laid out.
        names: Names of mutants.
        options: More options for pytest.
    """
    with inside(bench):
        # kept out of the settings, whose change makes mutmut forget its results
        os.environ["PYTEST_ADDOPTS"] = options
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, resource.RLIM_INFINITY))
        _leave_out_the_meaningless()
        _fail_without_shrinking()
        _mutmut()._run(tuple(names), 1)


def check_names(target: Target, bench: Path) -> None:
    """Make sure that tests keep their names: mutmut collects them in the process that it forks.

    Raises:
        SystemExit: pytest escapes the names of some tests anew, so no mutant would find them.
    """
    path = os.pathsep.join([str(bench / "mutants" / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", _TWICE, *target.tests],
        cwd=bench / "mutants",
        env=os.environ | {"PYTHONPATH": path, "MUTANT_UNDER_TEST": ""},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode or done.stderr.strip():
        raise SystemExit(f"give these tests ids without characters to escape:\n{done.stderr}")


def generate(bench: Path) -> None:
    """Make the mutants, as `run` does first of all, and test none."""
    with inside(bench):
        _leave_out_the_meaningless()
        mutmut = _mutmut()
        mutmut.copy_src_dir()
        mutmut.create_mutants(1)


def _mutmut() -> Any:
    return importlib.import_module("mutmut.__main__")


def _leave_out_the_meaningless() -> None:
    """Keep mutmut's operators from what `mutation.wording` says means nothing."""
    cst: Any = importlib.import_module("libcst")
    mutators: Any = importlib.import_module("mutmut.mutation.mutators")
    blank = cst.Module([])
    looked_at = (cst.SimpleString, cst.Call, cst.Assign, cst.AnnAssign)

    def filtered(operator: Callable[[Any], Iterable[Any]]) -> Callable[[Any], Iterable[Any]]:
        def operate(node: Any) -> Iterable[Any]:
            for changed in operator(node):
                if not isinstance(node, looked_at) or not is_meaningless(
                    blank.code_for_node(node), blank.code_for_node(changed)
                ):
                    yield changed

        return operate

    operators: list[Any] = mutators.mutation_operators
    if getattr(operators[0][1], "__name__", "") == "operate":
        return
    operators[:] = [(kind, filtered(operator)) for kind, operator in operators]


def _fail_without_shrinking() -> None:
    """Have a property fail at its first counterexample: which one it is does not matter."""
    hypothesis: Any = importlib.import_module("hypothesis")
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "mutation",
        phases=phases,
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutation")
