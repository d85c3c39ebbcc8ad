"""Which environment variables the wheels read, found in their sources."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from catalog.shapes import Wheel, Workspace
from catalog.sources import read_sources

VARIABLES: Final[Mapping[str, str]] = {
    "ALL_PROXY": "The proxy of every request for which no other variable names one.",
    "DEEPSEEK_API_KEY": "The key of the endpoint, unless `api_key_env` names another variable. It "
    "wins over a stored key.",
    "DEEPSEEK_BASE_URL": "URL in front of `/chat/completions`, where `base_url` is not set.",
    "DSH_DEBUG": "Anything but empty: tracebacks and the log of the library on standard error.",
    "DSH_HOME": "One folder for everything of yours, in place of `~/.dsh` and the state folder of "
    "the platform.",
    "DSH_INVARIANTS": "How much is checked, `basic` or `full`. It wins over `level`.",
    "DSH_REQUIRE_PROGRAMS": "`1`: a program that a test needs and does not find fails the test "
    "instead of skipping it.",
    "HOME": "Your home folder, where `~` and `~/.dsh` lie.",
    "HTTPS_PROXY": "The proxy of requests to `https://` endpoints.",
    "HTTP_PROXY": "The proxy of requests to `http://` endpoints; not read where `REQUEST_METHOD` "
    "is set.",
    "LOCALAPPDATA": "On Windows, the folder in which the state folder lies.",
    "NO_COLOR": "Anything but empty: no dimmed text on a terminal.",
    "NO_PROXY": "Hosts that are reached without a proxy.",
    "REQUEST_METHOD": "Set in a CGI program, where a stranger chooses what `HTTP_PROXY` holds.",
    "SSL_CERT_DIR": "Folder of the certificate authorities to trust, without `ca_file`.",
    "SSL_CERT_FILE": "PEM file of the certificate authorities to trust, without `ca_file`.",
    "XDG_STATE_HOME": "On Linux, the folder in which the state folder lies, in place of "
    "`~/.local/state`.",
}
"""What each variable does. Proxies are read in lower case too, which then wins."""

NAMED_ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "apps/dsh-cli/src/dsh/cli/_doctor_facts.py": ("DEEPSEEK_API_KEY",),
    "apps/dsh-cli/src/dsh/cli/_demo_settings.py": (),
    "apps/dsh-cli/src/dsh/cli/_keys.py": ("DEEPSEEK_API_KEY",),
    "packages/dsh-llm-deepseek/src/dsh/llm_deepseek/_endpoint.py": (
        *("ALL_PROXY", "DEEPSEEK_BASE_URL", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
        *("SSL_CERT_DIR", "SSL_CERT_FILE"),
    ),
    "packages/dsh-llm-deepseek/src/dsh/llm_deepseek/_proxy.py": (
        *("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY"),
    ),
    "packages/dsh-loader/src/dsh/loader/_interpolate.py": (),
}
"""Files that read a variable whose name is worked out at run time, with the names it can have.

An expression `${env:NAME}` reads whatever a deployment names, and the demo only puts back what it
has changed: neither makes a variable of the wheel.
"""

_ENVIRON: Final = re.compile(r"(^|[._])environ$")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable and who reads it."""

    name: str
    """Its name, in upper case."""
    text: str
    """What it does."""
    wheels: tuple[str, ...]
    """The wheels that read it."""


def read_variables(
    workspace: Workspace,
    texts: Mapping[str, str] = VARIABLES,
    named_elsewhere: Mapping[str, tuple[str, ...]] = NAMED_ELSEWHERE,
) -> tuple[Variable, ...]:
    """Return the variables that the wheels read, by name.

    Args:
        workspace: The workspace.
        texts: What each variable does.
        named_elsewhere: Names that the files which work them out can arrive at.

    Raises:
        ValueError: A variable is read and not described, here or in the README of its wheel; one
            is described and not read; or nobody can tell which one is read.
    """
    scan = Scan(workspace)
    problems: list[str] = []
    for file in sorted(scan.unclear.keys() | named_elsewhere.keys()):
        if file not in named_elsewhere:
            problems.append(f"{file}: reads a variable, and which is not in NAMED_ELSEWHERE")
        elif file not in scan.unclear:
            problems.append(f"{file}: in NAMED_ELSEWHERE, and every variable it reads is plain")
        for name in named_elsewhere.get(file, ()) if file in scan.unclear else ():
            scan.readers[name].add(scan.unclear[file])
    problems += [f"{name}: read by no wheel" for name in sorted(texts.keys() - scan.readers)]
    readmes = {wheel.name: _readme(workspace, wheel) for wheel in workspace.wheels}
    found: list[Variable] = []
    for name, wheels in sorted(scan.readers.items()):
        if name not in texts:
            problems.append(f"{name}: read by {', '.join(sorted(wheels))} and not in VARIABLES")
            continue
        silent = [wheel for wheel in sorted(wheels) if name not in readmes.get(wheel, "")]
        problems += [
            f"{name}: the README of {wheel}, which reads it, is silent" for wheel in silent
        ]
        found.append(Variable(name, texts[name], tuple(sorted(wheels))))
    if problems:
        raise ValueError("environment variables:\n  " + "\n  ".join(problems))
    return tuple(found)


def _readme(workspace: Workspace, wheel: Wheel) -> str:
    path = workspace.root / wheel.folder / "README.md"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


class Scan:
    """What the sources of a workspace read from the environment.

    Args:
        workspace: The workspace.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.readers: defaultdict[str, set[str]] = defaultdict(set)
        """Wheels by the variable they read."""
        self.unclear: dict[str, str] = {}
        """Files that read a variable nobody can name from the source alone, with their wheel."""
        files = {
            module.file: (module.wheel, _Source(module.tree))
            for module in read_sources(workspace).modules.values()
        }
        known: dict[str, ast.expr] = {}
        for _, source in files.values():
            known.update(source.constants)
        for file, (wheel, source) in files.items():
            for node in source.reads:
                names = source.names(node, known)
                for name in names:
                    self.readers[name.upper()].add(wheel)
                if not names:
                    self.unclear[file] = wheel


class _Source:
    def __init__(self, tree: ast.Module) -> None:
        self.constants: dict[str, ast.expr] = {}
        """Values of names in the module, and defaults of fields of its classes."""
        self.reads: list[ast.expr] = []
        """What names the variable, for each reading access."""
        self._tree = tree
        for node in ast.walk(tree):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                self.constants.setdefault(node.target.id, _default(node.value))
            read = _read(node)
            if read is not None:
                self.reads.append(read)
        for node in tree.body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                self.constants[node.targets[0].id] = node.value

    @cached_property
    def _parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in; only few files are asked."""
        nodes = ast.walk(self._tree)
        return {child: node for node in nodes for child in ast.iter_child_nodes(node)}

    def names(self, node: ast.expr, known: Mapping[str, ast.expr]) -> set[str]:
        """Return the names that an expression can stand for; none if they are not plain.

        Args:
            node: The expression.
            known: Constants of the whole workspace, for those that are imported.
        """
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set()
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            parts = [self.names(item, known) for item in node.elts]
            return {name for part in parts for name in part} if all(parts) else set()
        if isinstance(node, ast.Attribute):
            return self._constant(node.attr, known)
        if isinstance(node, ast.Name):
            source = self._loop_source(node)
            if source is not None:
                return self.names(source, known)
            # what is not written like a constant holds another value every time
            return self._constant(node.id, known) if node.id.isupper() else set()
        return set()

    def _constant(self, name: str, known: Mapping[str, ast.expr]) -> set[str]:
        value = self.constants.get(name, known.get(name))
        plain = isinstance(value, ast.Constant | ast.Tuple | ast.List | ast.Set)
        return self.names(value, known) if plain else set()

    def _loop_source(self, name: ast.Name) -> ast.expr | None:
        """Return what a name runs over, where it is the variable of a loop."""
        for node in self._above(name):
            loops: list[ast.For | ast.comprehension] = []
            if isinstance(node, ast.For):
                loops = [node]
            elif isinstance(node, ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
                loops = list(node.generators)
            for loop in loops:
                if isinstance(loop.target, ast.Name) and loop.target.id == name.id:
                    return loop.iter
        return None

    def _above(self, node: ast.AST) -> Iterator[ast.AST]:
        current = self._parents.get(node)
        while current is not None:
            yield current
            current = self._parents.get(current)


def _read(node: ast.AST) -> ast.expr | None:
    """Return what names the variable, of a reading access."""
    match node:
        case ast.Call(func=func, args=[first, *_]) if _is_environ_get(func):
            return first
        case ast.Subscript(value=value, slice=name, ctx=ast.Load()) if _is_environ(value):
            return name
        case ast.Compare(left=name, ops=[ast.In() | ast.NotIn(), *_], comparators=[value, *_]) if (
            _is_environ(value)
        ):
            return name
        case _:
            return None


def _default(value: ast.expr) -> ast.expr:
    """Return the default inside `Field(default=...)`, or the value itself."""
    if isinstance(value, ast.Call):
        return next((item.value for item in value.keywords if item.arg == "default"), value)
    return value


def _is_environ(node: ast.expr) -> bool:
    return _ENVIRON.search(ast.unparse(node)) is not None


def _is_environ_get(function: ast.expr) -> bool:
    if isinstance(function, ast.Name):
        return function.id == "getenv"
    if not isinstance(function, ast.Attribute):
        return False
    return function.attr == "getenv" or (
        function.attr in {"get", "pop", "setdefault"} and _is_environ(function.value)
    )
