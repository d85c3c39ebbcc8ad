"""Twenty questions about where things are, to be answered from names alone.

`docs/orientation.md` holds them with their answers. Without an option the questions are printed,
to be asked of somebody who has not read the code; `--ask` asks them one by one, takes the file
(a part of its path is enough) and, if wanted, the symbol that the reader would open, and says at
the end which were missed: each miss is a name or a place to mend. `--check` fails if an answer
names a file or a symbol that is not there.

Usage: `uv run python scripts/orientation.py [--ask | --check]`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/orientation.md")

_ROW = re.compile(r"^\| (?P<question>[^|]+\?) \| \[`(?P<symbol>[^`]+)`\]\((?P<file>[^)]+)\)")


@dataclass(frozen=True)
class Question:
    """One question.

    Args:
        text: What is asked.
        file: The file to open, relative to the workspace.
        symbol: What to look for in it, dotted; empty where the file itself is the answer.
    """

    text: str
    file: str
    symbol: str

    def is_answered_by(self, answer: str) -> bool:
        """Tell whether the end of the file's path, or a symbol, was named."""
        said = answer.strip().removeprefix("./")
        if not said:
            return False
        symbol = said.split("(")[0].strip("`")
        return self.file.endswith(said) or symbol in (self.symbol, self.symbol.split(".")[-1])


def read(root: Path) -> list[Question]:
    """Return the questions of the page.

    Raises:
        SystemExit: There are fewer than twenty.
    """
    found: list[Question] = []
    for line in (root / PAGE).read_text(encoding="utf-8").splitlines():
        row = _ROW.match(line)
        if row is not None:
            path = (root / PAGE.parent / row["file"]).resolve()
            symbol = "" if row["symbol"] == path.name else row["symbol"]
            found.append(Question(row["question"], str(path.relative_to(root.resolve())), symbol))
    if len(found) < 20:
        raise SystemExit(f"{PAGE}: {len(found)} questions can be read, not twenty")
    return found


def problems(root: Path, questions: list[Question]) -> Iterator[str]:
    """Yield a line for each answer that leads nowhere."""
    for question in questions:
        file = root / question.file
        if not file.is_file():
            yield f"{PAGE}: {question.text} {question.file} is not there"
        elif question.symbol and not _has(file, question.symbol):
            yield f"{PAGE}: {question.text} {question.file} has no {question.symbol}"


def ask(questions: list[Question], answer: Callable[[str], str]) -> str:
    """Ask every question and return what there is to say of the answers."""
    missed = [
        f"  {question.text}\n    {question.file} {question.symbol}".rstrip()
        for question in questions
        if not question.is_answered_by(answer(f"{question.text} "))
    ]
    right = len(questions) - len(missed)
    return "\n".join([f"{right} of {len(questions)} right", *missed]) + "\n"


def _has(file: Path, symbol: str) -> bool:
    """Tell whether a module defines a name, dotted for what is in a class."""
    if file.suffix != ".py":
        return symbol in file.read_text(encoding="utf-8")
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for name in symbol.split("."):
        for node in body:
            if name in _names(node):
                body = getattr(node, "body", [])
                break
        else:
            return False
    return True


def _names(node: ast.stmt) -> set[str]:
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return {node.name}
        case ast.Assign():
            return {target.id for target in node.targets if isinstance(target, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
        case _:
            return set()


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--ask", action="store_true", help="ask them one by one")
    what.add_argument("--check", action="store_true", help="check the answers")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace")
    args = parser.parse_args(arguments)
    questions = read(args.root)
    if args.ask:
        sys.stdout.write(ask(questions, input))
        return 0
    if args.check:
        wrong = list(problems(args.root, questions))
        sys.stdout.writelines(f"{line}\n" for line in wrong)
        return 1 if wrong else 0
    sys.stdout.writelines(f"{number}. {q.text}\n" for number, q in enumerate(questions, 1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
