"""What the catalog knows about a workspace: frozen values, sorted, free of machine paths."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["emit", "parallel", "serial", "waterfall", "stream"]
ValueKind: TypeAlias = Literal[
    "dataclass", "enum", "model", "typed-dict", "protocol", "alias", "constant", "error", "class"
]

Refs: TypeAlias = tuple[tuple[str, str], ...]
"""Names as they stand in a type text, each with the public path of what it means."""

Aliases: TypeAlias = tuple[tuple[str, str], ...]
"""Names of private type aliases in a type text, each with what it stands for."""


@dataclass(frozen=True, slots=True)
class Item:
    """A documented name of a docstring section: a parameter, an error, an attribute."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Doc:
    """A docstring in its parts. Texts are Markdown."""

    text: str = ""
    params: tuple[Item, ...] = ()
    returns: str = ""
    yields: str = ""
    raises: tuple[Item, ...] = ()

    @property
    def summary(self) -> str:
        """The first paragraph, in one line."""
        return " ".join(self.text.split("\n\n", 1)[0].split())

    def __bool__(self) -> bool:
        return bool(self.text)


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point as a manifest declares it."""

    group: str
    name: str
    value: str
    """`module:attribute`."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel as its manifest describes it."""

    name: str
    """Distribution name, `dsh-tools`."""
    module: str
    """Import name, `dsh.tools`."""
    role: str
    description: str
    folder: str
    """Relative to the root, with slashes."""
    dependencies: tuple[str, ...]
    """Distribution names of wheels of this workspace."""
    foreign: tuple[str, ...]
    """Requirements on other distributions, as written."""
    entry_points: tuple[EntryPoint, ...]
    doc: Doc = Doc()
    """Docstring of the package."""

    def points(self, group: str) -> tuple[EntryPoint, ...]:
        """Return the entry points of one group."""
        return tuple(point for point in self.entry_points if point.group == group)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a dataclass or model, a property, or a documented attribute."""

    name: str
    type: str
    """As written."""
    default: str | None
    """The default as written, or None for a required field."""
    doc: str
    refs: Refs = ()
    init: bool = True
    """Whether it is an argument of the constructor."""
    aliases: Aliases = ()

    @property
    def shown(self) -> str:
        """The type with private aliases replaced by what they stand for."""
        text = self.type
        for name, meaning in self.aliases:
            text = re.sub(rf"\b{re.escape(name)}\b", lambda _, m=meaning: m, text)
        return text


@dataclass(frozen=True, slots=True)
class Method:
    """A function or a method with its signature, without `self`."""

    name: str
    signature: str
    """`async run(spec: BashSpec) -> BashResult`."""
    doc: Doc
    overloads: tuple[str, ...] = ()
    """Signatures of the overloads where there are some; they say more than `signature`."""
    parameters: tuple[str, ...] = ()
    """Names of the parameters, stars included."""
    refs: Refs = ()
    path: str = ""
    """Public import path, of functions and methods alike."""
    source: str = ""
    wheel: str = ""
    aliases: Aliases = ()
    abstract: bool = False


@dataclass(frozen=True, slots=True)
class Event:
    """An event class."""

    name: str
    cls: str
    path: str
    mode: Mode
    result: str | None
    """Type text of what listeners give, None where they give nothing."""
    scope: str | None
    realm: str | None
    errors: Literal["contain", "raise"]
    """What happens to a failing listener of an `emit` event."""
    doc: Doc
    fields: tuple[Field, ...]
    wheel: str
    source: str
    refs: Refs = ()
    """Names in `result`."""


@dataclass(frozen=True, slots=True)
class Provider:
    """A class that can be mounted to provide a service."""

    cls: str
    path: str
    wheel: str
    entry_points: tuple[str, ...]
    """Names under which `dsh.plugins` lists it; empty where an app or a test mounts it."""
    seam: bool
    """Whether `dsh.seam.<key>` lists it, so that the loader can choose it unnamed."""
    source: str


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """The class that declares a service key."""

    key: str
    cls: str
    path: str
    abstract: bool
    doc: Doc
    methods: tuple[Method, ...]
    properties: tuple[Field, ...]
    providers: tuple[Provider, ...]
    wheel: str
    source: str
    nested: tuple[Value, ...] = ()
    """Public classes inside of it: `Config`, with what every provider honours."""


@dataclass(frozen=True, slots=True)
class Payload:
    """An event type of the session log."""

    type: str
    cls: str
    path: str
    kind: Literal["surface", "log-only"]
    fields: tuple[Field, ...]
    doc: Doc
    wheel: str
    source: str
    properties: tuple[Field, ...] = ()


@dataclass(frozen=True, slots=True)
class Code:
    """A stable code of an error."""

    code: str
    name: str
    """The attribute that holds it; `code` for the one an error has unless told otherwise."""
    doc: str = ""
    """When it is used; empty where the text of the class says so."""


@dataclass(frozen=True, slots=True)
class Value:
    """A public class, alias or constant that is no event, service, payload or plugin."""

    cls: str
    path: str
    kind: ValueKind
    doc: Doc
    fields: tuple[Field, ...]
    wheel: str
    source: str
    bases: tuple[str, ...] = ()
    """Base classes: public paths where they are ours, else as written."""
    tag: str | None = None
    """`type` or `kind` on the wire, where the class is a member of a tagged union."""
    text: str = ""
    """What an alias or a constant is: the right side of its assignment."""
    refs: Refs = ()
    """Names in `text` and `bases`."""
    properties: tuple[Field, ...] = ()
    methods: tuple[Method, ...] = ()
    codes: tuple[Code, ...] = ()
    """Of an error: its stable codes."""
    abstract: bool = False
    constructor: Method | None = None
    """How it is made, of a class whose constructor is documented or takes nothing."""
    nested: tuple[Value, ...] = ()
    """Public classes inside of it, such as the `Config` of a plugin."""


@dataclass(frozen=True, slots=True)
class PublicModule:
    """A module without a leading underscore on its path."""

    path: str
    doc: Doc
    offers: tuple[tuple[str, str], ...]
    """What it lists as public: names, each with the path under which the catalog has it."""
    wheel: str
    source: str


@dataclass(frozen=True, slots=True)
class Injection:
    """A service that a plugin injects."""

    attribute: str
    key: str
    optional: bool


@dataclass(frozen=True, slots=True)
class PluginClass:
    """A plugin that can be mounted: a class, or a function named by an entry point."""

    name: str
    cls: str
    path: str
    config: tuple[Field, ...]
    """Fields of its `Config`; empty where it takes no configuration."""
    injects: tuple[Injection, ...]
    provides: str | None
    """Service key of a service class."""
    doc: Doc
    wheel: str
    source: str
    entry_points: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that would leave a hole in the catalog."""

    file: str
    message: str
    """What is wrong and what to do."""

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """Everything the pages are made from. Every tuple is sorted.

    One is like no other, so that what is worked out from it can be kept for it.
    """

    root: Path
    wheels: tuple[Wheel, ...]
    events: tuple[Event, ...]
    services: tuple[ServiceClass, ...]
    payloads: tuple[Payload, ...]
    values: tuple[Value, ...]
    plugins: tuple[PluginClass, ...]
    functions: tuple[Method, ...]
    problems: tuple[Problem, ...]
    modules: tuple[PublicModule, ...] = ()

    @property
    def wheel_of(self) -> Mapping[str, Wheel]:
        """Wheels by distribution name."""
        return {wheel.name: wheel for wheel in self.wheels}
