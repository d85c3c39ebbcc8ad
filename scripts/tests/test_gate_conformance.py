"""`check_conformance.py` holds the table of cases and the tests that name them together."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "check_conformance.py"
HEAD = "# Conformance\n\n## One\n\n| case | what must hold | evidence |\n|---|---|---|\n"


class Table:
    """A table of cases and a folder of tests."""

    def __init__(self, root: Path, script: Any) -> None:
        self.root = root
        self.gate = script("check_conformance")

    def rows(self, *rows: str) -> None:
        path = self.root / "tests" / "conformance.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(HEAD + "".join(f"{row}\n" for row in rows), encoding="utf-8")

    def tests(self, source: str, path: str = "packages/dsh-a/tests/test_a.py") -> None:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(source, encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, list[str]]:
        command = [sys.executable, str(SCRIPT), *arguments, str(self.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        return done.returncode, done.stdout.splitlines()

    @property
    def problems(self) -> list[str]:
        lines = (self.root / "tests" / "conformance.md").read_text(encoding="utf-8").splitlines()
        cases = self.gate.tests_by_case(self.root)
        return list(self.gate.problems(self.gate.read_table(lines), cases))


@pytest.fixture
def table(tmp_path: Path, script: Any) -> Table:
    made = Table(tmp_path, script)
    made.rows("| A-01 | one holds | `packages/dsh-a/tests/test_a.py::test_one` |")
    made.tests("# case: A-01\ndef test_one() -> None: ...\n")
    return made


def test_a_table_in_step_passes(table: Any) -> None:
    assert table.run() == (0, ["conformance: 1 cases, 1 tested, 0 with a reason, 0 problems"])


def test_an_unlisted_case(table: Any) -> None:
    table.tests("# case: A-01\ndef test_one(): ...\n\n\n# case: B-09\ndef test_two(): ...\n")
    told = (
        "packages/dsh-a/tests/test_a.py::test_two names case B-09, which tests/conformance.md "
        "does not list"
    )
    code, lines = table.run()
    assert (code, lines[0]) == (1, told)
    assert lines[1].endswith("1 problems")


@pytest.mark.parametrize("evidence", ["", " ", "void", "void:", "later: ", "soon: files", "x"])
def test_a_case_without_a_test_or_a_reason(table: Any, evidence: str) -> None:
    table.rows(
        "| A-01 | one holds | `packages/dsh-a/tests/test_a.py::test_one` |",
        f"| A-02 | two holds | {evidence} |",
    )
    told = "tests/conformance.md:8: A-02 has neither a test nor a reason (void: ..., later: ...)"
    assert table.problems == [told]


@pytest.mark.parametrize("reason", ["void: there is no such thing", "later: files"])
def test_a_reason_stands_for_a_test(table: Any, reason: str) -> None:
    table.rows(
        "| A-01 | one holds | `packages/dsh-a/tests/test_a.py::test_one` |",
        f"| A-02 | two holds | {reason} |",
    )
    assert table.run()[0] == 0


@pytest.mark.parametrize("reason", ["void: there is no such thing", "later: files"])
def test_a_reason_with_a_test(table: Any, reason: str) -> None:
    table.rows(f"| A-01 | one holds | {reason} |")
    told = (
        "tests/conformance.md:7: A-01 gives a reason, yet "
        "packages/dsh-a/tests/test_a.py::test_one covers it"
    )
    assert table.problems == [told]


@pytest.mark.parametrize(
    "evidence",
    [
        "`packages/dsh-a/tests/test_a.py::test_other`",
        "`packages/dsh-a/tests/test_a.py::test_one`, `packages/dsh-a/tests/test_b.py::test_two`",
        "`packages/dsh-a/tests/test_a.py::test_one` and 1 more",
    ],
)
def test_stale_evidence(table: Any, evidence: str) -> None:
    table.rows(f"| A-01 | one holds | {evidence} |")
    told = "tests/conformance.md:7: A-01 names other tests than there are; run with --write"
    assert table.problems == [told]


def test_a_case_that_is_listed_twice(table: Any) -> None:
    row = "| A-01 | one holds | `packages/dsh-a/tests/test_a.py::test_one` |"
    table.rows(row, row)
    assert table.problems == ["tests/conformance.md:8: A-01 is listed twice"]


def test_writing_fills_in_what_the_tests_say_and_nothing_else(table: Any) -> None:
    table.rows(
        "| A-01 | one holds | stale |",
        "| A-02 | two holds | |",
        "| A-03 | three holds | later: files |",
        "| A-04 | four holds | |",
    )
    tests = "".join(f"# case: A-01\ndef test_{n}(): ...\n\n\n" for n in ("a", "b", "c", "d", "e"))
    table.tests(
        tests + "async def test_f():\n    # a case of its own\n    # case: A-02\n    pass\n"
    )
    code, lines = table.run("--write")
    assert code == 1
    assert lines[:1] == [
        "tests/conformance.md:10: A-04 has neither a test nor a reason (void: ..., later: ...)"
    ]
    text = (table.root / "tests/conformance.md").read_text(encoding="utf-8")
    where = "packages/dsh-a/tests/test_a.py"
    assert text == HEAD + (
        f"| A-01 | one holds | `{where}::test_a`, `{where}::test_b`, `{where}::test_c` "
        "and 2 more |\n"
        f"| A-02 | two holds | `{where}::test_f` |\n"
        "| A-03 | three holds | later: files |\n"
        "| A-04 | four holds | |\n"
    )
    assert table.run("--write")[0] == 1
    assert (table.root / "tests/conformance.md").read_text(encoding="utf-8") == text


def test_a_case_above_no_test(table: Any) -> None:
    table.rows(
        "| A-01 | one holds | `packages/dsh-a/tests/test_a.py::test_one` |",
        "| A-02 | two holds | `packages/dsh-a/tests/test_a.py::` |",
    )
    table.tests("# case: A-01\ndef test_one(): ...\n\n\n# case: A-02\ndef helper(): ...\n")
    told = "packages/dsh-a/tests/test_a.py names case A-02 where no test follows"
    assert table.problems == [told]


PLACES = '''
# case: A-01, A-02
@pytest.mark.parametrize("x", [1])
async def test_above(x): ...


def test_inside():
    # case: A-03
    assert True


class TestGroup:
    # case: A-04
    def test_method(self): ...

    def test_other(self):
        # case: A-05
        assert True


# case: A-06
# case: A-07
def test_two_lines(): ...


def test_with_a_text():
    text = """
# case: A-08
"""
    # case: A-09
    assert text


class TestInherited(Contract):
    # case: A-10
    def make(self): ...


# case: A-11
class TestOther(Contract): ...
'''


def test_where_a_case_may_be_named(table: Any) -> None:
    table.tests(PLACES, "apps/dsh-b/tests/test_b.py")
    table.tests("# case: A-01\ndef test_c(): ...\n", "tests/deep/test_c.py")
    table.tests("# case: A-01\ndef test_d(): ...\n", "tests/helpers.py")
    cases = table.gate.tests_by_case(table.root)
    where = "apps/dsh-b/tests/test_b.py"
    assert cases == {
        "A-01": [
            "packages/dsh-a/tests/test_a.py::test_one",
            f"{where}::test_above",
            "tests/deep/test_c.py::test_c",
        ],
        "A-02": [f"{where}::test_above"],
        "A-03": [f"{where}::test_inside"],
        "A-04": [f"{where}::test_method"],
        "A-05": [f"{where}::test_other"],
        "A-06": [f"{where}::test_two_lines"],
        "A-07": [f"{where}::test_two_lines"],
        "A-09": [f"{where}::test_with_a_text"],
        "A-10": [f"{where}::TestInherited"],
        "A-11": [f"{where}::TestOther"],
    }
