"""The workspace as the catalog sees it, read from manifests and sources alone."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import griffe

from catalog import declarations, plugins, values
from catalog.docs import read_doc
from catalog.manifests import read_wheels
from catalog.reader import Reader
from catalog.shapes import (
    Doc,
    Event,
    Method,
    Payload,
    PluginClass,
    Problem,
    Provider,
    Value,
    Wheel,
    Workspace,
)
from catalog.tree import SourceTree


def load_workspace(root: Path) -> Workspace:
    """Read the workspace below `root`; nothing of it is imported.

    Whatever would leave a hole in a page is in `problems` of the result.

    Args:
        root: Folder with `packages/` and `apps/`.
    """
    root = root.resolve()
    problems: list[Problem] = []
    wheels = read_wheels(root, problems)
    tree = SourceTree(root, wheels)
    wheels = tuple(replace(wheel, doc=_package_doc(tree, wheel)) for wheel in wheels)
    reader = Reader(tree, wheels, problems)
    return _Collector(reader).workspace(root)


def _package_doc(tree: SourceTree, wheel: Wheel) -> Doc:
    package = tree.find(wheel.module)
    return Doc() if package is None else read_doc(package.docstring)


class _Collector:
    """Sorts every definition into the kind of entry it makes."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._events: list[Event] = []
        self._payloads: list[Payload] = []
        self._plugins: list[PluginClass] = []
        self._values: list[Value] = []
        self._functions: list[Method] = []
        self._interfaces: list[griffe.Class] = []
        self._providers: defaultdict[str, list[Provider]] = defaultdict(list)

    def workspace(self, root: Path) -> Workspace:
        """Read everything."""
        reader = self._reader
        for thing in reader.tree.objects():
            if isinstance(thing, griffe.Class):
                self._class(thing)
            elif isinstance(thing, griffe.Function):
                self._function(thing)
            elif reader.tree.is_public(thing):
                self._values.append(values.value(reader, thing))
        services = [
            plugins.service(reader, cls, tuple(self._providers[plugins.key_of(reader, cls) or ""]))
            for cls in self._interfaces
        ]
        return Workspace(
            root=root,
            wheels=reader.wheels,
            events=tuple(sorted(self._events, key=lambda e: (e.name, e.path))),
            services=tuple(sorted(services, key=lambda s: (s.key, s.path))),
            payloads=tuple(sorted(self._payloads, key=lambda p: (p.type, p.path))),
            values=tuple(sorted(self._values, key=lambda v: v.path)),
            plugins=tuple(sorted(self._plugins, key=lambda p: (p.name, p.path))),
            functions=tuple(sorted(self._functions, key=lambda f: f.path)),
            problems=tuple(sorted(set(reader.problems), key=str)),
            modules=tuple(values.module(reader, one) for one in reader.tree.public_modules()),
        )

    def _class(self, cls: griffe.Class) -> None:
        reader = self._reader
        if declarations.is_event(reader, cls):
            found = declarations.event(reader, cls)
            if found is not None:
                self._events.append(found)
        elif declarations.is_payload(reader, cls):
            self._payloads.append(declarations.payload(reader, cls))
        elif reader.tree.derives(cls, "Plugin"):
            self._plugin(cls)
        elif reader.tree.is_public(cls):
            self._values.append(values.value(reader, cls))

    def _plugin(self, cls: griffe.Class) -> None:
        reader = self._reader
        kernel = cls.path.startswith("dsh.core.")  # bases of plugins, not plugins
        public = reader.tree.is_public(cls)
        service = plugins.is_service(reader, cls) and not kernel
        if service:
            self._interfaces.append(cls)
        elif public:
            self._values.append(values.value(reader, cls))
        listed = bool(plugins.entry_points(reader, cls, "dsh.plugins"))
        if kernel or plugins.is_abstract(reader, cls) or not (public or listed):
            return
        self._plugins.append(plugins.plugin(reader, cls))
        key = plugins.key_of(reader, cls)
        if key is not None:
            self._providers[key].append(plugins.provider(reader, cls, key))

    def _function(self, fn: griffe.Function) -> None:
        reader = self._reader
        if plugins.entry_points(reader, fn, "dsh.plugins"):
            self._plugins.append(plugins.function_plugin(reader, fn))
        if reader.tree.is_public(fn):
            self._functions.append(values.function(reader, fn))
