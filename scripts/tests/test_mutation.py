"""What mutation testing leaves out, counts and excuses; the mutating itself is mutmut's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from mutation.engine import chosen_tests, lay_out
from mutation.equivalents import Equivalent, read, stale
from mutation.results import Mutant
from mutation.targets import TARGETS, Target
from mutation.wording import is_meaningless, is_meaningless_line

ROOT = Path(__file__).resolve().parents[2]
KILLED = Mutant("m.x_f__mutmut_1", "dsh/m.py", "f", "a < 1", "a <= 1", "killed")
ALIVE = replace(KILLED, name="m.x_f__mutmut_2", after="a < 2", status="survived")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"no such tool"', '"XXno such toolXX"'),
        ('Broken("no such tool", code)', "Broken(None, code)"),
        ('Broken(f"no tool {name}", code)', "Broken(None, code)"),
        ('Broken(code, hint="try again")', "Broken(code, hint=None)"),
        ('Broken(code, hint="try again")', "Broken(code, )"),
        ("cast(Tool, value)", "cast(None, value)"),
        ('_log.warning("%s failed", name)', "_log.warning(name)"),
        ("self.done = False", "self.done = None"),
    ],
)
def test_wording_is_left_alone(before: str, after: str) -> None:
    assert is_meaningless(before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"tool"', '"XXtoolXX"'),
        ('", "', '"XX, XX"'),
        ('b"data: x"', 'b"DATA: X"'),
        ('Broken("no such tool", code)', 'Broken("no such tool", None)'),
        ('Broken("no such tool", code)', "Broken(code)"),
        ('Broken(code, hint="again")', "Broken(code, )"),
        ("cast(Tool, value)", "cast(Tool, None)"),
        ("find(False)", "find(None)"),
        ("self.done = True", "self.done = False"),
        ("self.same = one == False", "self.same = None"),
    ],
)
def test_everything_else_is_changed(before: str, after: str) -> None:
    assert not is_meaningless(before, after)


@pytest.mark.parametrize(
    ("before", "after", "meaningless"),
    [
        ('return cast("Tool", f(x))', 'return cast("TOOL", f(x))', True),
        ('return cast("Tool", f(x))', 'return cast("Tool", f(None))', False),
        ("case _:\npass", "", True),
        ("f\"no tool {names['a']!r}\",", "f\"no tool {names['A']!r}\",", True),
        ('f"{turn}",', 'f"{step}",', False),
    ],
)
def test_some_wording_shows_in_the_line_alone(before: str, after: str, meaningless: bool) -> None:
    assert is_meaningless_line(before, after) is meaningless


def test_not_ending_is_noticed() -> None:
    assert replace(ALIVE, status="timeout").killed
    assert not replace(ALIVE, status="no tests").killed


def test_an_excuse_fits_one_change() -> None:
    entry = Equivalent("dsh/m.py", "f", "a is never 1", "a < 1", "a < 2")
    assert entry.covers(ALIVE)
    assert not entry.covers(KILLED)
    anywhere = Equivalent("dsh/*", "*", "a is never 1", "a < 1")
    assert anywhere.covers(ALIVE)
    assert not anywhere.covers(replace(ALIVE, before="b < 1"))


def test_an_excuse_for_what_is_no_survivor_is_stale() -> None:
    fits = Equivalent("dsh/m.py", "f", "a is never 1", "a < 1", "a < 2")
    dead = replace(fits, after="a <= 1")
    gone = replace(fits, function="g")
    elsewhere = replace(fits, file="dsh/other.py")
    assert stale([fits, dead, gone, elsewhere], [KILLED, ALIVE]) == [dead, gone]


def test_every_excuse_says_why_and_names_a_file() -> None:
    for entry in read():
        assert entry.reason
        assert any(any((ROOT / w / "src").glob(entry.file)) for t in TARGETS for w in t.wheels)


def test_the_report_fails_below_the_floor(script: Callable[[str], ModuleType]) -> None:
    report = script("mutate").report
    text, code = report(TARGETS[0], [KILLED, ALIVE])
    assert code == 1
    assert "1 of 2 killed, 50.0 %" in text
    assert "a < 2" in text
    assert report(TARGETS[0], [KILLED])[1] == 0
    assert report(TARGETS[0], [KILLED, replace(ALIVE, status="not checked")])[1] == 1


def test_the_targets_are_there() -> None:
    for target in TARGETS:
        for pattern in target.mutate:
            assert any(any((ROOT / w / "src/dsh").glob(pattern)) for w in target.wheels)
        assert all((ROOT / tests).exists() for tests in target.tests)
        for name in target.later + target.never:
            file, _, test = name.partition("::")
            assert f"def {test}" in (ROOT / target.tests[0] / file).read_text(encoding="utf-8")


def test_the_first_pass_leaves_out_what_the_second_runs() -> None:
    target = Target("t", (), (), ("tests",), "fast", later=("test_a.py",), never=("test_b.py",))
    first, second = (chosen_tests(target, every=every) for every in (False, True))
    assert first.endswith('-k "fast" --deselect=tests/test_b.py --deselect=tests/test_a.py')
    assert second.endswith("--deselect=tests/test_b.py")
    assert "-k" not in second


def test_a_bench_follows_the_sources(tmp_path: Path) -> None:
    root = tmp_path / "workspace"
    target = replace(TARGETS[0], tests=("packages/dsh-llm-deepseek/tests",))
    source = root / target.wheels[0] / "src/dsh/lamp.py"
    texts = {
        source: "LIT = 1\n",
        root / target.wheels[0] / "README.md": "A lamp.\n",
        root / target.tests[0] / "test_lamp.py": "",
        root / "conftest.py": "",
        root / "packages/conftest.py": "",
        root / "pyproject.toml": '[tool.pytest.ini_options]\nfilterwarnings = ["error"]\n',
    }
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    bench = lay_out(target, root)
    copy = bench / "src/dsh/lamp.py"
    made = copy.stat().st_mtime_ns
    assert lay_out(target, root) == bench
    assert copy.stat().st_mtime_ns == made  # mutmut would test it all anew
    record = bench / "mutants" / "mutmut-stats.json"
    known = {f"{target.tests[0]}/test_lamp.py::test_on": 1.0, "elsewhere/test_sun.py::test_up": 2.0}
    record.write_text(json.dumps({"duration_by_test": known}), encoding="utf-8")
    lay_out(target, root)
    assert json.loads(record.read_text(encoding="utf-8"))["duration_by_test"] == known
    (root / target.tests[0] / "test_lamp.py").write_text("LIT = 1\n", encoding="utf-8")
    lay_out(target, root)
    kept = json.loads(record.read_text(encoding="utf-8"))["duration_by_test"]
    assert kept == {"elsewhere/test_sun.py::test_up": 2.0}  # the other is new to mutmut
    source.rename(source.with_name("lantern.py"))
    lay_out(target, root)
    assert not copy.exists()
    assert (bench / "src/dsh/lantern.py").read_text(encoding="utf-8") == "LIT = 1\n"
    assert (bench / "mutants" / target.tests[0] / "test_lamp.py").exists()
