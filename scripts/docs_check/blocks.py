"""Reading the fenced blocks of a page, and what their info strings ask for."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

LANGUAGES = {
    "python": {"no-run"},
    "sh": {"no-run"},
    "text": {"output"},
    "yaml": {"no-check"},
    "toml": set[str](),
    "json": set[str](),
    "jsonl": set[str](),
    "md": set[str](),
    "ini": set[str](),
    "diff": set[str](),
    "html": set[str](),
    "mermaid": set[str](),
}
"""Every language a block may be in, and the flags it may carry."""

FILES = {"python", "sh", "yaml", "toml", "json", "jsonl", "md", "text", "ini"}
"""Languages whose blocks may say `file=PATH`."""

INSTEAD = {
    "py": "python",
    "bash": "sh",
    "shell": "sh",
    "console": "sh",
    "yml": "yaml",
    "markdown": "md",
    "": "text",
}
"""What to write in place of another common name."""

FENCE = re.compile(
    r"^(?P<indent>[ ]*)(?P<fence>`{3,}|~{3,})(?P<info>[^\n`]*)\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence)[ ]*$",
    re.MULTILINE | re.DOTALL,
)
_HIDDEN = re.compile(
    r"[ \t]*(?:(?:>|[-*+]|\d+[.)])[ \t]*)+(?P<fence>`{3,}|~{3,})"
    r"|[ ]*\t[ \t]*(?P<tabbed>`{3,}|~{3,})"
)
"""A fence where none is read: in a quote, beside the mark of a list item, behind a tab."""
_REFUSED = (
    "a block in a quote, behind a tab or beside the mark of a list item is not checked: give its "
    "fence a line of its own, indented by spaces alone"
)
_OPENING = re.compile(r"^ *(?:`{3,}|~{3,})", re.MULTILINE)
_OWN_ENVIRONMENT = re.compile(r"^<!-- docs: own environment -->$", re.MULTILINE)
_INTERACTIVE = re.compile(r"^\$ ", re.MULTILINE)


@dataclass(frozen=True)
class Problem:
    """Something a page says that does not hold."""

    path: Path
    line: int
    text: str

    def show(self, root: Path) -> str:
        """Return it as a line for the terminal, with the path as seen from `root`."""
        path = self.path.relative_to(root) if self.path.is_relative_to(root) else self.path
        place = f"{path}:{self.line}" if self.line else str(path)
        return f"{place}: {self.text}"


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: Path
    line: int
    """Line of its first line of code."""
    language: str
    flags: frozenset[str]
    file: str | None
    """Where `file=` asks to write it, as seen from the page's folder."""
    exit: int
    """The exit code that is expected of a `sh` block."""
    code: str
    output: Output | None = None
    """What it is shown to print."""

    @property
    def runs(self) -> bool:
        """Whether the block is executed."""
        executable = self.language in {"python", "sh"}
        return executable and self.file is None and "no-run" not in self.flags

    @property
    def padded(self) -> str:
        """The code after so many empty lines that line numbers are those of the page."""
        return "\n" * (self.line - 1) + self.code

    def problem(self, text: str, line: int | None = None) -> Problem:
        """Return a problem of this block."""
        return Problem(self.page, self.line if line is None else line, text)


@dataclass(frozen=True)
class Output:
    """The `text output` block that follows a block which runs."""

    line: int
    text: str


@dataclass(frozen=True)
class Page:
    """A page as it was read."""

    path: Path
    text: str
    blocks: Sequence[Block]
    problems: Sequence[Problem]
    """What is wrong with the way it is written."""
    own_environment: bool


def without_blocks(text: str) -> str:
    """Return the text of a page without its blocks; lines keep their numbers."""
    return FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)


def read_page(path: Path) -> Page:
    """Read a page and its blocks."""
    blocks: list[Block] = []
    problems: list[Problem] = []
    text = _without_hidden(path, path.read_text(encoding="utf-8"), problems)
    end = -1
    for found in FENCE.finditer(text):
        block = _block(path, text, found, problems)
        if block is not None and block.language == "text" and "output" in block.flags:
            if blocks and blocks[-1].runs and not text[end : found.start()].strip():
                earlier = blocks.pop()
                block = replace(earlier, output=Output(block.line, block.code))
            else:
                problems.append(block.problem("`output` follows no block that runs"))
        if block is not None:
            blocks.append(block)
        end = found.end()
    rest = without_blocks(text)
    if unclosed := _OPENING.search(rest):
        line = rest.count("\n", 0, unclosed.start()) + 1
        problems.append(Problem(path, line, "this block is never closed"))
    return Page(path, text, blocks, problems, bool(_OWN_ENVIRONMENT.search(rest)))


def _without_hidden(path: Path, text: str, problems: list[Problem]) -> str:
    """Return the text without the blocks whose fences stand where none is read; refuse those."""
    kept: list[str] = []
    fence, hidden, quoted = "", False, False
    for number, line in enumerate(text.split("\n"), start=1):
        if quoted and not line.lstrip().startswith(">"):
            fence, quoted = "", False  # the quote is over, and so is what stands in it
        if fence:
            bare = line.strip(" \t>") if hidden else line.strip()
            kept.append("" if hidden else line)
            if bare.startswith(fence) and not bare.strip(fence[0]):
                fence, quoted = "", False
        elif found := _HIDDEN.match(line):
            fence, hidden, quoted = found["fence"] or found["tabbed"], True, ">" in found[0]
            kept.append("")
            problems.append(Problem(path, number, _REFUSED))
        else:
            opening = _OPENING.match(line)
            fence, hidden = (opening[0].strip() if opening else ""), False
            kept.append(line)
    return "\n".join(kept)


def _block(path: Path, text: str, found: re.Match[str], problems: list[Problem]) -> Block | None:
    line = text.count("\n", 0, found.start()) + 2
    language, *words = found["info"].split() or [""]

    def refuse(message: str) -> None:
        problems.append(Problem(path, line - 1, message))

    if language not in LANGUAGES:
        hint = INSTEAD.get(language) or f"one of {', '.join(sorted(LANGUAGES))}"
        refuse(f"a block in {language!r}: write {hint}")
        return None
    flags: set[str] = set()
    options: dict[str, str] = {}
    for word in words:
        key, sign, value = word.partition("=")
        if word in LANGUAGES[language]:
            flags.add(word)
        elif sign and _takes(language, key, value):
            options[key] = value
        else:
            refuse(f"a {language} block cannot be {word!r}")
    if "file" in options and not _is_inside(options["file"]):
        refuse(f"file={options['file']} is outside of the page's folder")
        return None
    code = textwrap.dedent(found["code"]) if found["indent"] else found["code"]
    if language == "sh" and "file" not in options and _INTERACTIVE.search(code):
        refuse(
            "a sh block without `$ ` in front of its commands; show what it prints in a "
            "`text output` block"
        )
    return Block(
        path,
        line,
        language,
        frozenset(flags),
        options.get("file"),
        int(options.get("exit", "0")),
        code,
    )


def _takes(language: str, key: str, value: str) -> bool:
    if key == "file":
        return language in FILES
    return key == "exit" and language == "sh" and value.isdecimal()


def _is_inside(name: str) -> bool:
    path = Path(name.removeprefix("~/"))
    return bool(name) and not path.is_absolute() and ".." not in path.parts


def output_differs(block: Block, printed: str) -> str | None:
    """Return how `printed` differs from the output shown for the block, if it does.

    A line `...` stands for any number of lines, `...` within a line for any text.
    """
    if block.output is None:
        return None
    wanted = [line.rstrip() for line in block.output.text.strip("\n").split("\n")]
    got = "\n".join(line.rstrip() for line in printed.strip("\n").split("\n"))
    pattern = ""
    for index, line in enumerate(wanted):
        last = index == len(wanted) - 1
        if line.strip() == "...":
            pattern += r"(?:[^\n]*\n)*" + (r"[^\n]*" if last else "")
        else:
            parts = (re.escape(part) for part in line.split("..."))
            pattern += r"[^\n]*".join(parts) + ("" if last else r"\n")
    if re.fullmatch(pattern, got):
        return None
    shown = textwrap.indent("\n".join(wanted), "    ")
    return f"prints something else\n  shown:\n{shown}\n  printed:\n{textwrap.indent(got, '    ')}"
