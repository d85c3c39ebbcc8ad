"""Settings of Sphinx for the documentation site; `scripts/build_site.py` says how to build it.

The repository itself is the source folder: a page keeps its place, and so the relative links that
work on a code host work on the site. What a code host does by itself is done here when a page is
read: a link to a folder leads to its README, and a block written to a file shows the file's name.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]

project = "dsh"
author = "dsh authors"
copyright = author
root_doc = "README"
extensions = ["myst_parser"]
include_patterns = [
    "*.md",
    "docs/*.md",
    "docs/**/*.md",
    "packages/*/README.md",
    "apps/*/README.md",
    "benchmarks/README.md",
    "examples/*.md",
    "examples/*/README.md",
]
nitpicky = True

myst_heading_anchors = 4
myst_links_external_new_tab = False

html_theme = "furo"
html_title = "dsh"
html_show_copyright = False
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": True}

# whether the build was given a local copy of Mermaid; without one, diagrams stay readable text
draws = "DSH_SITE_MERMAID" in os.environ
if draws:
    extensions.append("sphinxcontrib.mermaid")
    myst_fence_as_directive = ["mermaid"]
    html_static_path = ["static", os.environ["DSH_SITE_MERMAID"]]
    html_css_files = ["site.css"]
    mermaid_use_local = "mermaid.esm.min.mjs"
    mermaid_fullscreen_button = "+"
    mermaid_height = "auto"
    mermaid_init_config = {
        "startOnLoad": False,
        "flowchart": {"useMaxWidth": False},
        "sequence": {"useMaxWidth": False},
    }

NAVIGATION = {
    "Start": ["README.md", "docs/README.md", "docs/tutorial.md"],
    "Guides": [
        "docs/guides/run.md",
        "docs/guides/sessions.md",
        "docs/guides/configure.md",
        "docs/guides/embed.md",
        "docs/guides/test-a-plugin.md",
        "docs/guides/swap-a-backend.md",
        "docs/guides/*.md",
        "docs/cookbook/README.md",
        "examples/README.md",
    ],
    "How it works": [
        "docs/kernel.md",
        "docs/architecture.md",
        "docs/orientation.md",
        "docs/decisions/README.md",
    ],
    "Reference": ["docs/catalog/README.md", "apps/*/README.md", "packages/*/README.md"],
    "Contribute": ["CONTRIBUTING.md", "benchmarks/README.md", "*.md"],
}
"""The chapters of the site and their pages, in order; a page stands where it is matched first."""

BELOW = {
    "docs/cookbook/README": "docs/cookbook/*.md",
    "docs/catalog/README": "docs/catalog/*.md",
    "docs/decisions/README": "docs/decisions/*.md",
    "examples/README": "examples/*/README.md",
}
"""Pages that have others below them."""

_LINK = re.compile(r"(?<=\]\()(?P<target>[^)\s#:]+)(?=[)#])")
_NAMED_BLOCK = re.compile(r"^(?P<fence> *`{3,})(?P<language>\w+) file=(?P<file>\S+)$", re.MULTILINE)
_PLAIN = {"jsonl": "json"} if draws else {"jsonl": "json", "mermaid": "text"}
_OTHER = re.compile(rf"^(?P<fence> *`{{3,}})(?P<language>{'|'.join(_PLAIN)})$", re.MULTILINE)
_OUTPUT = re.compile(r"^(?P<fence> *`{3,})text output$", re.MULTILINE)


def chapters() -> dict[str, list[str]]:
    """Return the chapters with the names of their documents."""
    seen: set[str] = set()
    return {title: _documents(patterns, seen) for title, patterns in NAVIGATION.items()}


def below(docname: str) -> list[str]:
    """Return the names of the documents below another."""
    return _documents([BELOW[docname]], {docname}) if docname in BELOW else []


def _documents(patterns: list[str], seen: set[str]) -> list[str]:
    """Return the documents that match and were not seen before, and note them as seen."""
    found: list[str] = []
    for pattern in patterns:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).with_suffix("").as_posix()
            if name not in seen:
                seen.add(name)
                found.append(name)
    return found


class _Sphinx(Protocol):
    def connect(self, event: str, callback: Callable[[_Sphinx, str, list[str]], None]) -> int: ...


def _prepare(app: _Sphinx, docname: str, source: list[str]) -> None:
    """Turn a page as a code host reads it into one that MyST reads the same way."""
    folder = (ROOT / docname).parent

    def link(found: re.Match[str]) -> str:
        target = found["target"]
        if (folder / target / "README.md").is_file():
            return f"{target.rstrip('/')}/README.md"
        return target

    text = _LINK.sub(link, source[0])
    text = _NAMED_BLOCK.sub(_captioned(r"\g<language>", r"\g<file>"), text)
    text = _OUTPUT.sub(_captioned("text", "Output"), text)
    text = _OTHER.sub(lambda found: found["fence"] + _PLAIN[found["language"]], text)
    if docname == root_doc:
        text += "".join(_toctree(title, names) for title, names in chapters().items())
    text += _toctree(None, below(docname))
    source[0] = text


def _captioned(language: str, caption: str) -> str:
    return rf"\g<fence>{{code-block}} {language}" + f"\n:caption: {caption}\n"


def _toctree(title: str | None, names: list[str]) -> str:
    if not names:
        return ""
    caption = "" if title is None else f":caption: {title}\n"
    entries = "\n".join("Overview <self>" if name == root_doc else f"/{name}" for name in names)
    return f"\n\n```{{toctree}}\n:hidden:\n{caption}\n{entries}\n```\n"


def setup(app: _Sphinx) -> None:
    """Have every page prepared when it is read."""
    app.connect("source-read", _prepare)
