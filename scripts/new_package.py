"""Create the skeleton of a new wheel.

Usage: `python scripts/new_package.py dsh-NAME "one line of description" --role ROLE`.
Writes `pyproject.toml`, `README.md`, `LICENSE` and the typed package, then adds the wheel to the
workspace root. What is left to you: the README and the dependencies.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

from workspace.wheels import ROLES

ROOT = Path(__file__).resolve().parent.parent

MANIFEST = """\
[build-system]
requires = ["hatchling>=1.27,<2"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "{version}"
description = {description}
readme = "README.md"
license = "MIT"
license-files = ["LICENSE"]
requires-python = ">=3.11"
authors = [{{ name = "dsh authors" }}]
classifiers = ["Typing :: Typed"]
dependencies = [
{dependencies}]

[tool.hatch.build]
dev-mode-dirs = ["src"]

[tool.hatch.build.targets.wheel]
only-include = ["src/dsh/{module}"]
sources = ["src"]
core-metadata-version = "2.4"

[tool.hatch.build.targets.sdist]
include = ["/src", "/tests", "/README.md", "/LICENSE"]
core-metadata-version = "2.4"

[tool.dsh]
role = "{role}"
"""


def workspace_version(root: Path) -> str:
    """Return the version every wheel of the workspace shares."""
    kernel = root / "packages" / "dsh-core" / "pyproject.toml"
    if not kernel.exists():
        return "0.1.0"
    found = re.search(r'^version = "([^"]+)"', kernel.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise SystemExit(f"{kernel}: no version line")
    return found.group(1)


def create(root: Path, name: str, role: str, description: str, dependencies: list[str]) -> Path:
    """Write the skeleton of wheel `name` and return its folder."""
    module = name.removeprefix("dsh-").replace("-", "_")
    folder = root / ("apps" if role == "app" else "packages") / name
    if (folder / "pyproject.toml").exists():
        raise SystemExit(f"{folder} exists already; pick another name or remove it")
    package = folder / "src" / "dsh" / module
    package.mkdir(parents=True)
    (folder / "tests").mkdir()
    version = workspace_version(root)
    lines = "".join(
        f'    "{dep}=={version}",\n' if dep.startswith("dsh-") else f'    "{dep}",\n'
        for dep in dependencies
    )
    (folder / "pyproject.toml").write_text(
        MANIFEST.format(
            name=name,
            version=version,
            description=json.dumps(description, ensure_ascii=False),
            module=module,
            role=role,
            dependencies=lines,
        ),
        encoding="utf-8",
    )
    (folder / "README.md").write_text(f"# {name}\n\n{description}\n", encoding="utf-8")
    shutil.copyfile(root / "LICENSE", folder / "LICENSE")
    (package / "__init__.py").write_text(
        f'"""{description}."""\n\n__all__: list[str] = []\n', encoding="utf-8"
    )
    (package / "py.typed").write_text("", encoding="utf-8")
    return folder


def join_workspace(root: Path, name: str) -> None:
    """Add wheel `name` to the root manifest's dependencies and workspace sources."""
    manifest = root / "pyproject.toml"
    text = manifest.read_text(encoding="utf-8")
    for start, line in (
        ("dependencies = [\n", f'    "{name}",\n'),
        ("[tool.uv.sources]\n", f"{name} = {{ workspace = true }}\n"),
    ):
        if line in text:
            continue
        head, tail = text.split(start, 1)
        end = re.search(r"^(?![ \"a-z])", tail, re.MULTILINE)
        cut = end.start() if end else len(tail)
        block = sorted([*tail[:cut].splitlines(keepends=True), line])
        text = head + start + "".join(block) + tail[cut:]
    manifest.write_text(text, encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="dsh-<words>")
    parser.add_argument("description", help="what it is, in one line")
    parser.add_argument("--role", choices=list(ROLES), required=True)
    parser.add_argument("--needs", nargs="*", default=[], help="distributions it imports")
    parser.add_argument("--root", type=Path, default=ROOT, help="the workspace")
    args = parser.parse_args(arguments)
    if not re.fullmatch(r"dsh-[a-z0-9]+(-[a-z0-9]+)*", args.name):
        parser.error(f"{args.name!r} is no wheel name: use dsh-<words>")
    if not (args.root / "pyproject.toml").is_file():
        parser.error(f"--root {args.root} is no workspace: there is no pyproject.toml in it")
    folder = create(args.root, args.name, args.role, args.description, args.needs)
    join_workspace(args.root, args.name)
    sys.stdout.write(f"created {folder.relative_to(args.root)}; now run uv lock\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
