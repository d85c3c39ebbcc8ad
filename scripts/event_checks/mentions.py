"""A name of an event that stands in a text is the name of an event.

Looked at are the sources (strings, docstrings and comments alike) and the Markdown pages. A word of
the shape `family/action` counts as a mention where its family is one that events or session events
of the workspace belong to; it must then be one of theirs, or be declared in the same file, as the
examples of a guide do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from catalog.shapes import Workspace
from catalog.uses import Finding

FOREIGN: dict[str, str] = {
    "llm/retry": "a type in logs of other harnesses that a recording may hold",
    "llm/retry-started": "as llm/retry",
}
"""Names that are not ours and are spoken of all the same, with the reason."""

_DECLARED = re.compile(r"""\b(?:name|type)\s*=\s*["'](?P<name>[a-z-]+/[a-z-]+)["']""")
_SHAPE = r"(?<![\w/.:@<-])(?P<name>(?:{families})/[a-z]+(?:-[a-z]+)*)(?![\w/*<-]|\.\w|\()"


def check_mentions(workspace: Workspace) -> Iterator[Finding]:
    """Yield every mention of an event that does not exist."""
    known = {event.name for event in workspace.events}
    known |= {payload.type for payload in workspace.payloads}
    families = sorted({name.partition("/")[0] for name in known})
    if not families:
        return
    mention = re.compile(_SHAPE.format(families="|".join(map(re.escape, families))))
    for path in texts(workspace.root):
        text = path.read_text(encoding="utf-8")
        own = {found["name"] for found in _DECLARED.finditer(text)}
        for found in mention.finditer(text):
            name = found["name"]
            if name not in known | own | FOREIGN.keys():
                yield Finding(
                    path.relative_to(workspace.root).as_posix(),
                    text.count("\n", 0, found.start()) + 1,
                    f"{name} is spoken of, but no event and no session event has that name",
                )


def texts(root: Path) -> list[Path]:
    """Return the files that are looked at; not the changelog, which tells of the past."""
    found = [path for path in root.glob("*.md") if path.name != "CHANGELOG.md"]
    found += root.glob("docs/**/*.md")
    for place in ("packages", "apps"):
        found += root.glob(f"{place}/*/README.md")
        found += root.glob(f"{place}/*/src/**/*.py")
    return sorted(found)
