"""The sources of the workspace as a tree of griffe objects, and what its names mean."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import griffe

from catalog.shapes import Aliases, Mode, Refs, Wheel

KERNEL = "dsh.core"

MODES: dict[str, Mode] = {
    "Emit": "emit",
    "Parallel": "parallel",
    "Serial": "serial",
    "Waterfall": "waterfall",
    "StreamWaterfall": "stream",
}
"""Base classes of events and the way of dispatch each stands for."""


class SourceTree:
    """The `dsh` namespace as written: nothing of it is imported.

    Args:
        root: The workspace.
        wheels: Its wheels.
    """

    def __init__(self, root: Path, wheels: tuple[Wheel, ...]) -> None:
        self.root = root
        self._wheels = {wheel.module.removeprefix("dsh."): wheel.name for wheel in wheels}
        folders = [root / wheel.folder / "src" for wheel in wheels]
        self.loader = griffe.GriffeLoader(
            search_paths=[str(folder) for folder in folders if folder.is_dir()],
            allow_inspection=False,
        )
        logging.getLogger("griffe").setLevel(logging.CRITICAL)
        loaded = self.loader.load("dsh")
        assert isinstance(loaded, griffe.Module)
        self.package = loaded
        self.public = self._public_paths()

    # --- objects --------------------------------------------------------------------------

    def modules(self, top: griffe.Module | None = None) -> Iterator[griffe.Module]:
        """Yield every module of every wheel, sorted by path."""
        for name, member in sorted((top or self.package).members.items()):
            if isinstance(member, griffe.Module) and member.name == name:
                yield member
                yield from self.modules(member)

    def public_modules(self) -> Iterator[griffe.Module]:
        """Yield the modules without a leading underscore on their path, sorted by path."""
        for module in self.modules():
            if not any(part.startswith("_") for part in module.path.split(".")):
                yield module

    def objects(self) -> Iterator[griffe.Class | griffe.Function | griffe.Attribute]:
        """Yield what modules define at their top level, in order of path."""
        for module in self.modules():
            for _, member in sorted(module.members.items()):
                if isinstance(member, griffe.Class | griffe.Function | griffe.Attribute):
                    yield member

    def find(self, path: str) -> griffe.Object | None:
        """Return what a dotted path means once re-exports are followed, or None."""
        try:
            found = self.loader.modules_collection.get_member(path)
            return found.final_target if isinstance(found, griffe.Alias) else found
        except (KeyError, griffe.AliasResolutionError, griffe.CyclicAliasError):
            return None

    def ancestry(self, cls: griffe.Class) -> list[griffe.Class]:
        """Return a class and its bases in this workspace, in method resolution order."""
        try:
            return [cls, *cls.mro()]
        except ValueError:
            return [cls]

    def derives(self, cls: griffe.Class, *names: str) -> bool:
        """Whether a class derives from one of the kernel's classes of these names."""
        return any(base.name in names for base in self.kernel_bases(cls))

    def kernel_bases(self, cls: griffe.Class) -> list[griffe.Class]:
        """Return the bases that the kernel defines, nearest first."""
        return [b for b in self.ancestry(cls)[1:] if b.path.startswith(f"{KERNEL}.")]

    # --- names ----------------------------------------------------------------------------

    def wheel(self, thing: griffe.Object) -> str:
        """Return the distribution a definition belongs to."""
        return self._wheels.get(thing.path.split(".")[1], "")

    def source(self, thing: griffe.Object) -> str:
        """Return the file of a definition, relative to the root."""
        path = thing.filepath
        if isinstance(path, list):
            path = path[0]
        return Path(path).relative_to(self.root).as_posix()

    def path(self, thing: griffe.Object) -> str:
        """Return the path under which a definition is to be imported."""
        known = self.public.get(thing.path)
        if known is not None:
            return known
        parent = thing.parent
        if isinstance(parent, griffe.Class):
            return f"{self.path(parent)}.{thing.name}"
        return thing.path

    def is_public(self, thing: griffe.Object) -> bool:
        """Whether some public module offers the definition."""
        return thing.path in self.public

    def refs(self, *texts: object) -> Refs:
        """Return what names in these expressions mean, as far as they are ours."""
        found: dict[str, str] = {}
        for text in texts:
            if isinstance(text, griffe.Expr):
                for name, path in self._names(text):
                    target = self.find(path) if path.startswith("dsh.") else None
                    if target is not None and self.is_public(target):
                        found[name] = self.path(target)
        return tuple(sorted(found.items()))

    def aliases(self, *texts: object) -> Aliases:
        """Return the private type aliases in these expressions, with what they stand for."""
        found: dict[str, str] = {}
        for text in texts:
            for name, path in self._names(text) if isinstance(text, griffe.Expr) else ():
                target = self.find(path) if path.startswith("dsh.") else None
                if isinstance(target, griffe.Attribute) and not self.is_public(target):
                    meaning = text_of(target.value)
                    if not meaning.startswith(("TypeVar(", "ParamSpec(")):
                        found[name] = without_metadata(literal(meaning) or meaning)
        return tuple(sorted(found.items()))

    @staticmethod
    def _names(text: griffe.Expr) -> Iterator[tuple[str, str]]:
        for part in text.iterate(flat=True):
            if isinstance(part, griffe.ExprName):
                yield part.path, part.canonical_path

    def _public_paths(self) -> dict[str, str]:
        """Map each definition to the shortest path by which its own wheel offers it."""
        offers: dict[str, list[tuple[bool, int, str]]] = {}
        for module in self.public_modules():
            for name in exported(module):
                path = f"{module.path}.{name}"
                target = self.find(path)
                if target is None or isinstance(target, griffe.Module):
                    continue
                foreign = target.path.split(".")[:2] != path.split(".")[:2]
                offers.setdefault(target.path, []).append((foreign, path.count("."), path))
        return {target: min(paths)[2] for target, paths in sorted(offers.items())}


def exported(module: griffe.Module) -> list[str]:
    """Return the public names of a module: `__all__`, or what it defines without underscore."""
    if module.exports is not None:
        return sorted(str(name) for name in module.exports)
    return sorted(
        name
        for name, member in module.members.items()
        if not name.startswith("_") and not isinstance(member, griffe.Alias | griffe.Module)
    )


def text_of(expression: object) -> str:
    """Return an expression as it is written, on one line."""
    return re.sub(r"\s*\n\s*", " ", str(expression)).strip()


def without_metadata(text: str) -> str:
    """Return the type inside `Annotated[...]`; the rest says how it is read, not what it is."""
    if not text.startswith("Annotated["):
        return text
    depth = 0
    inner = text.removeprefix("Annotated[")
    for index, char in enumerate(inner):
        if char == "," and not depth:
            return inner[:index]
        depth += (char in "([{") - (char in ")]}")
    return text


def literal(expression: object) -> str | None:
    """Return the text of a string literal, or None for anything else."""
    text = str(expression)
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return None
