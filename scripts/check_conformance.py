"""Gate: every conformance case names its test, or the reason why it has none.

`tests/conformance.md` holds tables of `| id | what must hold | evidence |`. A test names the case
it covers with a comment above it, `# case: EF-07`. The evidence column is either the tests found
(written by `--write`, checked here) or a reason: `void: ...` or `later: ...`.

Usage: `python scripts/check_conformance.py [--write] [ROOT]`.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = Path("tests", "conformance.md")
_ROW = re.compile(r"^\| (?P<id>[^|]+?) \| (?P<text>[^|]+?) \|(?P<evidence>[^|]*)\|$")
_MARK = "# case: "
_SHOWN = 3


@dataclass
class Row:
    """One case of the table."""

    line: int
    id: str
    text: str
    evidence: str

    @property
    def reason(self) -> str | None:
        """Why there is no test, if the row says so."""
        return self.evidence if re.match(r"(void|later): \S", self.evidence) else None


class Span(NamedTuple):
    """Where a test, or a class of tests, stands in its file."""

    start: int
    end: int
    name: str
    is_function: bool


def read_table(lines: list[str]) -> list[Row]:
    """Return the rows of every table."""
    rows: list[Row] = []
    for number, line in enumerate(lines):
        found = _ROW.match(line)
        if found and found["id"] != "case" and not set(found["id"]) <= {"-"}:
            rows.append(Row(number, found["id"], found["text"], found["evidence"].strip()))
    return rows


def tests_by_case(root: Path) -> dict[str, list[str]]:
    """Return the tests that name each case, as `path::name`."""
    cases: dict[str, list[str]] = {}
    for folder in ("packages", "apps", "tests"):
        for path in sorted((root / folder).rglob("test_*.py")):
            for case, name in _cases_of(path):
                cases.setdefault(case, []).append(f"{path.relative_to(root)}::{name}")
    return cases


def _cases_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield `(case, test)`; the comment stands inside the test, or above it.

    In a test class that only inherits its tests, the class is the test.
    """
    source = path.read_text(encoding="utf-8")
    if _MARK not in source:
        return
    tests = sorted(_spans(ast.parse(source)))
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and token.string.startswith(_MARK):
            name = _test_at(token.start[0], tests)
            for case in token.string.removeprefix(_MARK).split(","):
                yield case.strip(), name


def _test_at(line: int, spans: list[Span]) -> str:
    around = next((span for span in reversed(spans) if span.start <= line <= span.end), None)
    below = next((span for span in spans if span.start > line), None)
    if around and (around.is_function or below is None or below.start > around.end):
        return around.name
    return below.name if below else ""


def _spans(tree: ast.Module) -> Iterator[Span]:
    """Yield the lines of every test and test class, decorators included."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        is_function = not isinstance(node, ast.ClassDef)
        if node.name.startswith("test_" if is_function else "Test"):
            start = min((node.lineno, *(item.lineno for item in node.decorator_list)))
            yield Span(start, node.end_lineno or start, node.name, is_function)


def evidence_of(tests: list[str]) -> str:
    """Return the evidence column for a case with tests."""
    shown = ", ".join(f"`{test}`" for test in tests[:_SHOWN])
    more = len(tests) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown


def problems(rows: list[Row], cases: dict[str, list[str]]) -> Iterator[str]:
    """Yield what is wrong between the table and the tests."""
    seen: set[str] = set()
    for row in rows:
        where = f"tests/conformance.md:{row.line + 1}: {row.id}"
        if row.id in seen:
            yield f"{where} is listed twice"
        seen.add(row.id)
        tests = cases.get(row.id, [])
        if row.reason is not None:
            if tests:
                yield f"{where} gives a reason, yet {tests[0]} covers it"
        elif not tests:
            yield f"{where} has neither a test nor a reason (void: ..., later: ...)"
        elif row.evidence != evidence_of(tests):
            yield f"{where} names other tests than there are; run with --write"
    for case, tests in sorted(cases.items()):
        for test in tests:
            if test.endswith("::"):
                yield f"{test.removesuffix('::')} names case {case} where no test follows"
    for case in sorted(set(cases) - seen):
        yield f"{cases[case][0]} names case {case}, which tests/conformance.md does not list"


def write(lines: list[str], rows: list[Row], cases: dict[str, list[str]]) -> str:
    """Return the table with the evidence of every tested case filled in."""
    for row in rows:
        tests = cases.get(row.id)
        if tests and row.reason is None:
            lines[row.line] = f"| {row.id} | {row.text} | {evidence_of(tests)} |"
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """Check the table, or write its evidence."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("root", nargs="?", type=Path, default=ROOT, help="the workspace")
    parser.add_argument("--write", action="store_true", help="fill in the evidence of tested cases")
    args = parser.parse_args(arguments)
    table: Path = args.root / TABLE
    if not table.is_file():
        parser.error(f"{args.root} is no workspace: there is no {TABLE} in it")
    lines = table.read_text(encoding="utf-8").splitlines()
    rows = read_table(lines)
    cases = tests_by_case(args.root)
    if args.write:
        table.write_text(write(lines, rows, cases), encoding="utf-8")
        rows = read_table(table.read_text(encoding="utf-8").splitlines())
    found = list(problems(rows, cases))
    for problem in found:
        sys.stdout.write(f"{problem}\n")
    tested = sum(1 for row in rows if row.reason is None)
    sys.stdout.write(
        f"conformance: {len(rows)} cases, {tested} tested, {len(rows) - tested} with a reason, "
        f"{len(found)} problems\n"
    )
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
