"""Type-checking the Python blocks of all pages with one run of pyright."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs_check.blocks import Block, Page, Problem

_SETTINGS = {
    "typeCheckingMode": "standard",
    "pythonVersion": "3.11",
    # a page shows one thing in several ways, under one name
    "reportRedeclaration": False,
    "reportMissingModuleSource": False,
}


def check_types(pages: Sequence[Page], folder: Path) -> Iterator[Problem]:
    """Yield the type errors of the blocks of `pages`.

    The blocks of a page that run are one module, as they share one namespace; each `no-run`
    block is a module of its own; `file=` blocks lie where the page puts them.

    Args:
        pages: The pages.
        folder: An empty folder to write the modules to.
    """
    written: dict[Path, tuple[Page, str]] = {}
    places: list[dict[str, Any]] = []
    for number, page in enumerate(pages):
        place = folder / f"page{number}"
        modules = _modules(page)
        for name, text in modules.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written[path] = (page, name)
        if modules:
            places.append({"root": str(place), "extraPaths": [str(place / "src")]})
    if not written:
        return
    settings = _SETTINGS | {"include": ["."], "executionEnvironments": places}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    for found in _pyright(folder):
        page, _ = written[Path(found["file"])]
        if found["severity"] == "error" and not _is_made_by_the_page(page, found):
            line = found["range"]["start"]["line"] + 1
            rule = f" ({found['rule']})" if "rule" in found else ""
            yield Problem(page.path, line, f"{found['message']}{rule}")


def _modules(page: Page) -> dict[str, str]:
    """Return the modules of a page: their paths, and texts with the line numbers of the page."""
    found: dict[str, str] = {}
    shared: list[Block] = []
    for block in page.blocks:
        if block.language != "python" or not _compiles(block):
            continue
        if block.file is not None:
            found[block.file.removeprefix("~/")] = block.padded
        elif block.runs:
            shared.append(block)
        else:
            found[f"_block_{block.line}.py"] = block.padded
    if shared:
        lines: list[str] = []
        for block in shared:
            lines += [""] * (block.line - 1 - len(lines))
            lines += block.code.splitlines()
        found["_page.py"] = "\n".join(lines) + "\n"
    return found


def _compiles(block: Block) -> bool:
    try:
        compile(block.code, "block", "exec", dont_inherit=True)
    except SyntaxError:
        return False  # told as such already
    return True


def _is_made_by_the_page(page: Page, found: dict[str, Any]) -> bool:
    """Return whether an import is missing that a command of the page may have made."""
    if found.get("rule") not in {"reportMissingImports", "reportAttributeAccessIssue"}:
        return False
    scripted = any(block.language == "sh" and block.runs for block in page.blocks)
    imports = found["message"].startswith("Import ")
    return scripted and imports and '"dsh.' not in found["message"]


def _pyright(folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(
        [*command, "--project", str(folder)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return json.loads(done.stdout)["generalDiagnostics"]
    except (ValueError, KeyError):
        raise RuntimeError(f"pyright said: {done.stdout}{done.stderr}") from None
