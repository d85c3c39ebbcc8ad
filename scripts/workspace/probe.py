"""Imports entry points and tells what they lead to; runs in a process of its own.

Reads `[[wheel, group, name, value], ...]` from standard input; the last line of its output is the
list of findings. Both are JSON.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, cast


def find(value: str) -> Any:
    """Import what an entry point names."""
    module, _, attribute = value.partition(":")
    return reduce(
        getattr, attribute.split(".") if attribute else [], importlib.import_module(module)
    )


def problems(group: str, name: str, found: Any) -> Iterator[str]:
    """Yield what the group does not allow."""
    if group in {"dsh.plugins", "dsh.bundles"} or group.startswith("dsh.seam."):
        yield from _plugin(name, found)
    if group.startswith("dsh.seam."):
        yield from _provider(group.removeprefix("dsh.seam."), found)
    elif group == "dsh.defaults":
        if not isinstance(found, Mapping):
            yield "is no mapping of service keys to the names of their providers"
    elif group in {"dsh.commands", "console"} and not callable(found):
        yield "cannot be called"


def _plugin(name: str, found: Any) -> Iterator[str]:
    core = importlib.import_module("dsh.core")
    if not isinstance(found, type):
        if not callable(found):
            yield "is neither a Plugin class nor a function"
        return
    if not issubclass(found, core.Plugin):
        yield "is no Plugin class; derive it from dsh.core.Plugin"
        return
    if inspect.isabstract(found):
        yield f"is abstract; implement {', '.join(sorted(cast('Any', found).__abstractmethods__))}"
    own = getattr(found, "name", None)
    if own != name:
        yield f"has the name {own!r}; give the class and its entry point one name"


def _provider(key: str, found: Any) -> Iterator[str]:
    core = importlib.import_module("dsh.core")
    if not (isinstance(found, type) and issubclass(found, core.Service)):
        yield "is no Service class, so it cannot provide anything"
        return
    own = getattr(found, "service_key", None)
    if own != key:
        yield f"provides the key {own!r}; declare it under dsh.seam.{own}"


def main() -> None:
    """Check the entry points given on standard input."""
    findings: list[str] = []
    for wheel, group, name, value in json.load(sys.stdin):
        where = f"{wheel}: {group} {name} = {value}"
        try:
            found = find(value)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from being imported
            findings.append(f"{where} cannot be imported: {type(error).__name__}: {error}")
            continue
        findings += [f"{where} {problem}" for problem in problems(group, name, found)]
    sys.stdout.write(f"\n{json.dumps(findings)}")


if __name__ == "__main__":
    main()
