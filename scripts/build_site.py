"""Builds the documentation as a site, below `build/site`, and fails on any warning.

Everything is made from the repository; nothing is fetched. Diagrams are drawn in the reader's
browser by a copy of Mermaid that the site carries, if `--mermaid` names one; otherwise they are
shown as their text. `npm pack mermaid` fetches such a copy: give the folder `dist` of the package.

The site also has `llms.txt`, an index of all pages as plain text.

Usage: `uv run --group docs python scripts/build_site.py [--mermaid DIST] [--out FOLDER]`. Where the
group `docs` is not installed, the script runs itself again in a passing environment that has it.
To read it: `python -m http.server -d build/site`.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "scripts" / "docs_site"
_MODULE = "mermaid.esm.min.mjs"
_CHUNKS = Path("chunks", "mermaid.esm.min")
_START = """\
<!doctype html>
<meta charset="utf-8">
<title>dsh</title>
<meta http-equiv="refresh" content="0; url=README.html">
<a href="README.html">dsh</a>
"""


def build(out: Path, mermaid: Path | None = None) -> int:
    """Build the site in `out`, which is replaced, and return Sphinx's exit code.

    Args:
        out: The folder of the site.
        mermaid: The folder `dist` of a Mermaid package to put into it.
    """
    environment = {k: v for k, v in os.environ.items() if k != "DSH_SITE_MERMAID"}
    with tempfile.TemporaryDirectory(prefix="dsh-site-") as name:
        folder = Path(name)
        if mermaid is not None:
            static = folder / "static"
            shutil.copytree(mermaid / _CHUNKS, static / _CHUNKS)
            shutil.copy(mermaid / _MODULE, static)
            environment["DSH_SITE_MERMAID"] = str(static)
        made = folder / "site"
        command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-W", "--keep-going"]
        command += ["-c", str(SETTINGS), "-d", str(folder / "doctrees"), str(ROOT), str(made)]
        code = subprocess.run(command, env=environment, check=False).returncode
        if code == 0:
            (made / "index.html").write_text(_START, encoding="utf-8")
            (made / "llms.txt").write_text(index(made / "_sources"), encoding="utf-8")
            shutil.rmtree(out, ignore_errors=True)
            shutil.copytree(made, out)
    return code


def index(sources: Path) -> str:
    """Return the index of all pages: their titles, first sentences and plain texts."""
    lines = ["# dsh", "", _first_sentence((sources / "README.md.txt").read_text("utf-8")), ""]
    for path in sorted(sources.glob("**/*.md.txt")):
        text = path.read_text(encoding="utf-8")
        title = re.search(r"^# (.+)$", text, re.MULTILINE)
        name = title[1] if title else path.name
        link = path.relative_to(sources.parent).as_posix()
        lines.append(f"- [{name}]({link}): {_first_sentence(text)}")
    return "\n".join(lines) + "\n"


def _first_sentence(text: str) -> str:
    for paragraph in re.split(r"\n\s*\n", text):
        words = " ".join(paragraph.split())
        if words and words[0] not in "#<`|-![":
            return re.split(r"(?<=\.) ", words, maxsplit=1)[0]
    return ""


def main(arguments: list[str] | None = None) -> int:
    """Build the site and say where it is."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", metavar="FOLDER")
    parser.add_argument("--mermaid", type=Path, metavar="DIST")
    args = parser.parse_args(arguments)
    mermaid = None if args.mermaid is None else args.mermaid.resolve()
    if mermaid is not None and not (mermaid / _MODULE).is_file():
        parser.error(f"--mermaid {mermaid}: there is no {_MODULE} in it")
    code = build(args.out.resolve(), mermaid)
    if code == 0:
        sys.stdout.write(f"site: {args.out}/index.html\n")
    return code


def again(arguments: list[str]) -> int:
    """Run this script in an environment that has the group `docs` and nothing else."""
    beside = Path(sys.executable).with_name("uv")
    uv = str(beside) if beside.exists() else "uv"
    command = [uv, "run", "--quiet", "--isolated", "--only-group", "docs", "--project", str(ROOT)]
    return subprocess.run([*command, "python", __file__, *arguments], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main() if importlib.util.find_spec("sphinx") else again(sys.argv[1:]))
