"""The rules for names: what is typed, logged or sent somewhere is spelled one way, and only once.

Classes are CapWords. Events and session payloads are `scope/action`, plugins are kebab-case, keys
of services and parameters of tools are snake_case, error codes are UPPER_SNAKE. Events, payloads,
keys and codes each belong to one class. A wheel's public modules are `errors`, `events`, `testing`
and those its `__init__` lists or speaks of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import griffe

from public_api.faces import (
    ERROR,
    EVENT,
    PAYLOAD,
    PLUGIN,
    SERVICE,
    Api,
    Finding,
    bases,
    file_of,
    finding,
    is_a,
)

_CAPWORDS = re.compile(r"[A-Z][A-Za-z0-9]*")
_KEBAB = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_UPPER = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
_SCOPED = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*(/[a-z][a-z0-9]*(-[a-z0-9]+)*)+")
_MODULES = {"errors", "events", "testing"}


def check(api: Api) -> Iterator[Finding]:
    """Yield the names that break a rule."""
    yield from _modules(api)
    for path, item in api.symbols.items():
        if isinstance(item, griffe.Class) and not _CAPWORDS.fullmatch(item.name):
            yield finding(item, f"the class {path} is not CapWords")
    yield from _keywords(api, EVENT, "name", "event", _SCOPED, "scope/action in kebab-case")
    yield from _keywords(api, PAYLOAD, "type", "payload", _SCOPED, "scope/action in kebab-case")
    yield from _keywords(api, SERVICE, "key", "service key", _SNAKE, "snake_case")
    yield from _plugins(api)
    yield from _codes(api)
    yield from _tools(api)


def _modules(api: Api) -> Iterator[Finding]:
    for wheel in api.wheels:
        listed = {str(name) for name in wheel.exports or ()}
        text = wheel.docstring.value if wheel.docstring else ""
        for name, item in wheel.members.items():
            if not isinstance(item, griffe.Module) or name.startswith("_"):
                continue
            spoken = re.search(rf"\b{re.escape(item.path)}\b", text)
            if name not in _MODULES | listed and not spoken:
                yield finding(
                    item,
                    f"the module {item.path} is public, and its wheel's __init__ does not name it; "
                    "begin its name with _, or say there what it is for",
                )


def _keywords(
    api: Api, ancestor: str, keyword: str, what: str, rule: re.Pattern[str], style: str
) -> Iterator[Finding]:
    """Check the names that classes give in their bases, `class X(Emit, name="agent/status")`."""
    owners: dict[str, griffe.Class] = {}
    for item in api.classes:
        value = item.keywords.get(keyword) if is_a(item, ancestor) else None
        name = _text(value)
        if name is not None:
            yield from _name(item, owners, what, name, rule, style)


def _name(
    item: griffe.Class,
    owners: dict[str, griffe.Class],
    what: str,
    name: str,
    rule: re.Pattern[str],
    style: str,
) -> Iterator[Finding]:
    if not rule.fullmatch(name):
        yield finding(item, f"the {what} {name!r} of {item.path} is not {style}")
    owner = owners.setdefault(name, item)
    if owner is not item:
        yield finding(item, f"the {what} {name!r} of {item.path} is that of {owner.path} already")


def _plugins(api: Api) -> Iterator[Finding]:
    for item in api.classes:
        member = item.members.get("name") if is_a(item, PLUGIN) else None
        name = _text(member.value) if isinstance(member, griffe.Attribute) else None
        if name is not None and not _KEBAB.fullmatch(name):
            yield finding(item, f"the plugin name {name!r} of {item.path} is not kebab-case")


def _codes(api: Api) -> Iterator[Finding]:
    owners: dict[str, griffe.Class] = {}
    for item in api.classes:
        if not is_a(item, ERROR):
            continue
        inherited = {code for base in bases(item) for code in codes(base)}
        for code in codes(item):
            if code not in inherited:
                yield from _name(item, owners, "error code", code, _UPPER, "UPPER_SNAKE")
        if item.path != ERROR and not codes(item) and not inherited - {"ERROR"}:
            yield finding(item, f"{item.path} has no code; set `code`, or constants to choose from")


def codes(item: griffe.Class) -> list[str]:
    """Return the error codes that a class declares: its `code`, and its constants in capitals."""
    found: list[str] = []
    for name, member in item.members.items():
        if isinstance(member, griffe.Attribute) and (name == "code" or name.isupper()):
            code = _text(member.value)
            if code is not None and code not in found:
                found.append(code)
    return found


def _tools(api: Api) -> Iterator[Finding]:
    """Check the tools that the wheels give to a model: `@tool` functions and schemas."""
    for path in sorted({file_of(item) for item in _modules_of(api)}):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if "tool" in source.lower() else ():
            for place, what, name in _tool_names(node):
                if not _SNAKE.fullmatch(name):
                    yield Finding(path, place, f"the {what} {name!r} is not snake_case")


def _tool_names(node: ast.AST) -> Iterator[tuple[int, str, str]]:
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() if any(map(_is_tool, node.decorator_list)):
            yield node.lineno, "tool", node.name
            for argument in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]:
                yield argument.lineno, "tool parameter", argument.arg
        case ast.Call(func=ast.Name(id="Tool"), args=[ast.Constant(value=str(name)), *_]):
            yield node.lineno, "tool", name
        case ast.Call(func=ast.Name(id="Tool")):
            for keyword in node.keywords:
                if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
                    yield node.lineno, "tool", str(keyword.value.value)
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                if _is(key, "properties") and isinstance(value, ast.Dict):
                    for name in value.keys:
                        if isinstance(name, ast.Constant):
                            yield name.lineno, "parameter in a schema", str(name.value)
        case _:
            pass


def _is(key: ast.expr | None, text: str) -> bool:
    return isinstance(key, ast.Constant) and key.value == text


def _is_tool(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "tool"


def _modules_of(api: Api) -> Iterator[griffe.Module]:
    pending = list(api.wheels)
    while pending:
        module = pending.pop()
        yield module
        pending += [item for item in module.members.values() if isinstance(item, griffe.Module)]


def _text(value: object) -> str | None:
    """Return the string that an expression spells out, if it is one."""
    if value is None:
        return None
    try:
        found = ast.literal_eval(str(value))
    except (ValueError, SyntaxError):
        return None
    return found if isinstance(found, str) else None
