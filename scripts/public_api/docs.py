"""The rules for docstrings.

Everything public has one, down to methods, properties, fields and the codes of errors; an override
may leave it to the method it overrides. An `Args:` section names the parameters there are, all of
them. Services, events and the kernel are what others build on, so there every parameter is told,
every result, and every error of ours that a function raises itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

import griffe

from public_api.faces import (
    ERROR,
    EVENT,
    KERNEL,
    PAYLOAD,
    SERVICE,
    Api,
    Finding,
    bases,
    finding,
    is_a,
)

_RESULT = re.compile(r"(Return|Yield)s?\b|Tell whether\b|Whether\b")
_NO_RESULT = {"None", "Never", "NoReturn"}


@dataclass
class Sections:
    """A parsed docstring."""

    text: str
    args: list[str]
    raises: set[str]
    tells_result: bool


def parse(docstring: griffe.Docstring) -> Sections:
    """Read a docstring in Google style."""
    text, args, raises, result = "", list[str](), set[str](), False
    for section in docstring.parse("google", warnings=False):
        match section:
            case griffe.DocstringSectionText():
                text += section.value + "\n"
            case griffe.DocstringSectionParameters():
                args += [parameter.name.lstrip("*") for parameter in section.value]
            case griffe.DocstringSectionRaises():
                raises |= {str(item.annotation) for item in section.value}
            case griffe.DocstringSectionReturns() | griffe.DocstringSectionYields():
                result = True
            case _:
                pass
    return Sections(text, args, raises, result or bool(_RESULT.match(text)))


def check(api: Api) -> Iterator[Finding]:
    """Yield what the docstrings of the public symbols lack."""
    yield from api.missing()
    for module in api.public_modules:
        if not module.docstring:
            yield finding(module, f"{module.path} has no docstring")
    for path, item in api.symbols.items():
        yield from _symbol(api, path, item)


def _symbol(api: Api, path: str, item: griffe.Object) -> Iterator[Finding]:
    full = path.startswith(f"{KERNEL}.") or is_a(item, SERVICE)
    match item:
        case griffe.Function():
            yield from _function(api, path, item, full=full)
        case griffe.Class():
            yield from _class(api, path, item, full=full)
        case griffe.Attribute() if not item.docstring and not _is_dunder(item.name):
            yield finding(item, f"{path} has no docstring; put one below it")
        case _:
            pass


def _class(api: Api, path: str, item: griffe.Class, *, full: bool) -> Iterator[Finding]:
    if not item.docstring:
        yield finding(item, f"{path} has no docstring")
    told = set(parse(item.docstring).args) if item.docstring else set[str]()
    yield from _constructor(path, item, told)
    for name, member in _members(api, item).items():
        if name.startswith("test_"):
            continue  # a case of a contract suite: its name is the sentence
        where = f"{path}.{name}"
        if isinstance(member, griffe.Function):
            yield from _method(api, where, item, member, full=full)
        elif isinstance(member, griffe.Class):
            yield from _class(api, where, member, full=full)
        elif isinstance(member, griffe.Attribute):
            told_elsewhere = name in told or _overrides(item, name)
            if not member.docstring and not told_elsewhere and _needs_text(item, member):
                yield finding(member, f"{where} has no docstring; put one below it")


def _members(api: Api, item: griffe.Class) -> dict[str, griffe.Object]:
    """Return the public members of a class: its own, and those no public base answers for."""
    found: dict[str, griffe.Object] = {}
    answered: set[str] = set()
    for one in (item, *bases(item)):
        names = {
            name: member
            for name, member in one.members.items()
            if not name.startswith("_") and isinstance(member, griffe.Object)
        }
        if one is item or not api.is_public(one):
            own = {name: member for name, member in names.items() if name not in answered}
            found |= {name: member for name, member in own.items() if name not in found}
        answered |= set(names)
    return found


def _constructor(path: str, item: griffe.Class, told: set[str]) -> Iterator[Finding]:
    """Check the `Args:` of a class against its constructor.

    A class without them is one that others make, or its fields have texts of their own.
    """
    init = item.all_members.get("__init__")
    if not told or not isinstance(init, griffe.Function):
        return
    names = set(parameters(init))
    fields = {name for name, member in item.all_members.items() if member.is_attribute}
    for name in sorted(told - names - fields):
        yield finding(item, f"{path} documents {name}, which its constructor does not take")
    if "__init__" in item.members:
        texts = {name for name, member in item.members.items() if member.docstring}
        for name in sorted(names - told - texts):
            yield finding(item, f"{path} does not say what its argument {name} is; see Args:")


def _needs_text(item: griffe.Class, member: griffe.Attribute) -> bool:
    """Whether a reader cannot do without: a property, a field, a documented constant."""
    if "property" in member.labels:
        return True
    if is_a(item, ERROR) and member.name.isupper():
        # the text of a class with one code tells that code
        return sum(name.isupper() for name in item.members) > 1
    if _is_tag(member):
        return False
    if is_a(item, EVENT) or is_a(item, PAYLOAD):
        return "class-attribute" in member.labels or "instance-attribute" in member.labels
    declared = "dataclass-field" in member.labels or "dataclass" in item.labels
    return declared and member.annotation is not None


def _is_tag(member: griffe.Attribute) -> bool:
    """Whether it is a constant text of a dataclass: the tag that tells a union's members apart."""
    constant = "class-attribute" in member.labels and "instance-attribute" not in member.labels
    return constant and str(member.value).startswith(("'", '"'))


def _overrides(item: griffe.Class, name: str) -> bool:
    """Whether a base class has said what the member `name` is."""
    return any(name in base.members and base.members[name].docstring for base in bases(item))


def _method(
    api: Api, where: str, owner: griffe.Class, item: griffe.Function, *, full: bool
) -> Iterator[Finding]:
    inherited = _overrides(owner, item.name)
    if item.docstring or not inherited:
        yield from _function(api, where, item, full=full and not inherited)


def _function(api: Api, where: str, item: griffe.Function, *, full: bool) -> Iterator[Finding]:
    if not item.docstring:
        yield finding(item, f"{where} has no docstring")
        return
    sections = parse(item.docstring)
    names = parameters(item)
    for name in sections.args:
        if name not in names:
            yield finding(item, f"{where} documents {name}, which it does not take")
    if sections.args:
        missing = [name for name in names if name not in sections.args]
    else:
        spoken = set(re.findall(r"`(\w+)", sections.text))
        missing = [name for name in names if full and name not in spoken]
    for name in missing:
        if not _is_told_by_type(item, name):
            yield finding(item, f"{where} does not say what {name} is; name it under Args:")
    if full:
        yield from _result_and_errors(api, where, item, sections)


def _result_and_errors(
    api: Api, where: str, item: griffe.Function, sections: Sections
) -> Iterator[Finding]:
    result = str(item.returns) if item.returns is not None else "None"
    if result not in _NO_RESULT and not sections.tells_result:
        yield finding(
            item, f"{where} does not say what it returns; add Returns:, or begin with Return"
        )
    listed = {name.rpartition(".")[2] for name in sections.raises}
    for error in raised(api, item):
        names = {error.name} | {base.name for base in bases(error)}
        if not names & listed:
            yield finding(item, f"{where} raises {error.name}; say when under Raises:")


def parameters(item: griffe.Function) -> list[str]:
    """Return the names of the parameters a caller gives."""
    bound = isinstance(item.parent, griffe.Class) and "staticmethod" not in item.labels
    given = list(item.parameters)[1 if bound else 0 :]
    names = [parameter.name.lstrip("*") for parameter in given]
    return [name for name in names if not name.startswith("_")]


def _is_told_by_type(item: griffe.Function, name: str) -> bool:
    """Whether the type says all there is to say, as in `agent: Agent`."""
    found = next((one for one in item.parameters if one.name == name), None)
    if found is None or found.annotation is None:
        return False
    kind = str(found.annotation).removesuffix(" | None").rpartition(".")[2]
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", kind).lower() == name


def raised(api: Api, item: griffe.Function) -> list[griffe.Class]:
    """Return the errors of ours that the body of a function raises itself."""
    node = api.node(item)
    found: dict[str, griffe.Class] = {}
    for statement in _own_statements(node) if node else ():
        if not isinstance(statement, ast.Raise) or statement.exc is None:
            continue
        raising = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        error = _resolve(api, item, ast.unparse(raising))
        if error is not None:
            found[error.path] = error
    return list(found.values())


def _resolve(api: Api, item: griffe.Function, name: str) -> griffe.Class | None:
    try:
        target = api.namespace.modules_collection[item.resolve(name)]
    except (griffe.NameResolutionError, KeyError):
        return None
    target = target.final_target if isinstance(target, griffe.Alias) else target
    return target if isinstance(target, griffe.Class) and is_a(target, ERROR) else None


def _own_statements(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_statements(child)


def _is_dunder(name: str) -> bool:
    return name.startswith("__")
