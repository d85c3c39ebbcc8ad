"""Links, anchors and images of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from docs_check.blocks import FENCE, Page, Problem, without_blocks

_LINK = re.compile(
    r"(?P<image>!?)\[(?:[^\[\]]|\[[^\[\]]*\])*\]\((?P<target>[^)\s]+)(?: \"[^\"]*\")?\)"
)
_IMAGE = re.compile(r"!\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_DEFINITION = re.compile(r"^\[[^\]]+\]: +(?P<target>\S+)", re.MULTILINE)
_REFERENCE = re.compile(r"\[(?P<text>[^\[\]]+)\]\[(?P<label>[^\[\]]*)\]")
_LABEL = re.compile(r"^ {0,3}\[(?P<label>[^\]]+)\]: +\S", re.MULTILINE)
_HTML = re.compile(
    r"<(?:a|img)\b[^>]*?\b(?:href|src)\s*=\s*(?P<quote>[\"'])(?P<target>[^\"']+)(?P=quote)",
    re.IGNORECASE,
)
_HEADING = re.compile(r"^#+ (?P<text>.+)$", re.MULTILINE)
_ANCHOR = re.compile(r"<a (?:id|name)=\"(?P<name>[^\"]+)\"")


@dataclass(frozen=True)
class Link:
    """Where a page points."""

    line: int
    target: str
    """As written."""
    goal: Path | None
    """The file meant; none for an address."""
    anchor: str


def links(page: Page) -> Iterator[Link]:
    """Yield the links and images of a page."""
    text = _without_code(page)
    # an image may be the text of a link
    found = [*_LINK.finditer(text), *_IMAGE.finditer(text), *_DEFINITION.finditer(text)]
    found += _HTML.finditer(text)
    seen: set[tuple[int, str]] = set()
    for one in sorted(found, key=lambda one: one.start()):
        target = one["target"]
        line = text.count("\n", 0, one.start()) + 1
        if (line, target) in seen:
            continue
        seen.add((line, target))
        if re.match(r"[a-z][a-z+.-]*:", target):
            yield Link(line, target, None, "")
            continue
        name, _, anchor = target.partition("#")
        goal = (page.path.parent / name).resolve() if name else page.path
        yield Link(line, target, goal, anchor)


def _without_code(page: Page) -> str:
    """Return the text without blocks; code spans hold no links, but may be a link's text."""
    text = without_blocks(page.text)
    return re.sub(r"(`+)(?!`)(.*?)\1", lambda found: "x" * len(found[0]), text)


def undefined(page: Page) -> Iterator[Problem]:
    """Yield the links by a label, `[text][label]`, whose label the page does not define."""
    text = _without_code(page)
    defined = {_folded(found["label"]) for found in _LABEL.finditer(text)}
    for found in _REFERENCE.finditer(text):
        label = found["label"] or found["text"]
        if _folded(label) not in defined:
            line = text.count("\n", 0, found.start()) + 1
            yield Problem(page.path, line, f"link by the label [{label}], which is not defined")


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def anchors(text: str) -> set[str]:
    """Return the anchors that the headings of a page make, as code hosts number them."""
    found: set[str] = {one["name"] for one in _ANCHOR.finditer(text)}
    for heading in _HEADING.finditer(FENCE.sub("", text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading["text"])
        slug = re.sub(r"[^\w\- ]", "", words.lower()).strip().replace(" ", "-")
        name, number = slug, 0
        while name in found:
            number += 1
            name = f"{slug}-{number}"
        found.add(name)
    return found


def check_links(pages: Iterable[Page]) -> Iterator[Problem]:
    """Yield the links of pages that lead nowhere."""
    known: dict[Path, set[str]] = {}
    for page in pages:
        yield from undefined(page)
        for link in links(page):
            problem = _problem(link, known)
            if problem is not None:
                yield Problem(page.path, link.line, problem)


def _problem(link: Link, known: dict[Path, set[str]]) -> str | None:
    """Say what is wrong with a link, given the anchors of the pages seen so far; add to them."""
    goal = link.goal
    if goal is None:
        return None
    if not goal.exists():
        return f"link to {link.target.partition('#')[0]}, which does not exist"
    if not link.anchor or goal.suffix != ".md":
        return None
    if goal not in known:
        known[goal] = anchors(goal.read_text(encoding="utf-8"))
    if link.anchor in known[goal]:
        return None
    return f"link to {link.target}, which has no such heading"
