"""What a plugin declares: its name, its configuration, the services it injects, its listeners."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypeVar,
    cast,
    overload,
)

from pydantic import BaseModel, ConfigDict, ValidationError
from typing_extensions import TypeForm

from dsh.core.errors import ConfigError, ConfigIssue, InvalidPluginError, MissingServiceError

if TYPE_CHECKING:
    from dsh.core._context import Context
    from dsh.core._on import ListenerSpec

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
C_co = TypeVar("C_co", bound=BaseModel, covariant=True)

PluginFunction: TypeAlias = Callable[["Context", Any], object]
PluginLike: TypeAlias = "type[Plugin] | PluginFunction"
"""What can be mounted: a plugin class, or a function of `(ctx, config)`."""


def kebab(name: str) -> str:
    """Return a CamelCase or snake_case name in kebab case."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", "-", name).strip("-").lower()


class PluginConfig(BaseModel):
    """Base of plugin configurations: frozen, and unknown fields are errors."""

    # a model that only ever gives its defaults never pays for its validator
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Inject(Generic[T_co]):
    """Descriptor of one injected service; made by `inject`."""

    __slots__ = ("key", "optional", "type")

    def __init__(self, service: type[Any], *, optional: bool) -> None:
        self.type = service
        self.key = service_key(service)
        self.optional = optional

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Plugin, owner: type[Any]) -> T_co: ...
    def __get__(self, instance: Plugin | None, owner: type[Any]) -> Self | T_co:
        if instance is None:
            return self
        mount = instance.ctx.owner
        if self.optional:
            return cast("T_co", instance.ctx.get(self.type))
        impl = mount.store.get(self.key)
        if impl is None:
            raise MissingServiceError(self.key, mount.name, "inactive", self.type.__name__)
        return cast("T_co", impl.value)


@overload
def inject(service: TypeForm[T]) -> Inject[T]: ...
@overload
def inject(service: TypeForm[T], *, optional: Literal[True]) -> Inject[T | None]: ...
def inject(service: Any, *, optional: bool = False) -> Inject[Any]:
    """Declare that the plugin uses a service; read it as an attribute of the plugin.

    Args:
        service: The class that declared the key (an interface), never a provider.
        optional: Do not wait for the service; the attribute is `None` while it is absent and
            always shows the current provider.

    Returns:
        A descriptor; on an instance it reads as the service.

    Raises:
        TypeError: The class declares no service key of its own.
    """
    return Inject(service, optional=optional)


class Settings(Generic[C_co]):
    """Descriptor of a plugin's validated configuration; made by `settings`."""

    __slots__ = ("model",)

    def __init__(self, model: type[C_co]) -> None:
        self.model = model

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> Self: ...
    @overload
    def __get__(self, instance: Plugin, owner: type[Any]) -> C_co: ...
    def __get__(self, instance: Plugin | None, owner: type[Any]) -> Self | C_co:
        if instance is None:
            return self
        return cast("C_co", instance.ctx.owner.config)


def settings(model: type[C_co]) -> Settings[C_co]:
    """Declare the typed `config` attribute of a plugin with a nested `Config` model.

    Args:
        model: The model, a class nested in the plugin as `Config`, usually.

    Returns:
        A descriptor; on an instance it reads as the validated configuration.
    """
    return Settings(model)


class Plugin:
    """A unit with a lifecycle. The kernel constructs it; work begins in `start`.

    Everything `start` registers through `self.ctx` is undone, newest first, when the plugin is
    unloaded, so a plugin rarely needs teardown code of its own.
    """

    name: ClassVar[str]
    """Display and configuration name; the class name in kebab case where it is not given."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "name" not in cls.__dict__:
            cls.name = kebab(cls.__name__)

    async def start(self) -> Callable[[], object] | None:
        """Begin.

        Returns:
            None, or a sync or async callable that is registered as cleanup.
        """
        return None


class Service(Plugin):
    """A plugin that is itself a service: its instance is provided under the class's key.

    An interface names the key, `class BashExecutor(Service, ABC, key="bash")`; a provider derives
    from it. Consumers see the instance once its `start` has finished.
    """

    service_key: ClassVar[str]
    """Key under which instances are provided."""
    service_type: ClassVar[type[Any]]
    """The class that declared the key."""

    def __init_subclass__(cls, key: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if key is not None:
            cls.service_key = key
            cls.service_type = cls


def service_key(service: Any) -> str:
    """Return the key that `service` declares.

    Raises:
        TypeError: It is no service class, or it inherited its key from an interface.
    """
    if isinstance(service, type):
        declared = cast("type[Any]", service).__dict__.get("service_key")
        if isinstance(declared, str):
            return declared
        owner = getattr(cast("Any", service), "service_type", None)
        if owner is not None:
            raise TypeError(
                f"{service.__name__} provides {owner.service_key!r}; name the interface "
                f"{owner.__name__} that declared the key"
            )
    raise TypeError(f"{service!r} declares no service key; name the class of the service")


def key_of(service: Any) -> str:
    """Return the key of what may be a key already, or the class that declares it."""
    return service if isinstance(service, str) else service_key(service)


@dataclass(frozen=True, eq=False, slots=True)
class PluginDef:
    """The identity of a plugin: read once from its class or function, shared by every mount."""

    target: Any
    name: str
    config_model: type[BaseModel] | None
    injects: Mapping[str, Inject[Any]]
    listeners: tuple[ListenerSpec, ...] = ()
    is_class: bool = False
    passes_raw_config: bool = False
    """A function without a model receives its configuration as it was given."""

    def validate(self, raw: object) -> object:
        """Return the configuration as the plugin receives it.

        Raises:
            ConfigError: A field is unknown or does not fit.
        """
        model = self.config_model
        if model is None:
            if self.passes_raw_config:
                return raw
            if raw:
                given = cast("Mapping[object, object]", raw if isinstance(raw, Mapping) else {})
                issue = ConfigIssue(
                    tuple(str(key) for key in given)[:1], "this plugin takes no settings"
                )
                raise ConfigError(self.name, [issue])
            return None
        if isinstance(raw, model):
            return raw
        if not raw and _gives_defaults(model):
            return model.model_construct()
        try:
            return model.model_validate({} if raw is None else raw)
        except ValidationError as error:
            raise ConfigError(self.name, _issues(error)) from error


def _gives_defaults(model: type[BaseModel]) -> bool:
    """Whether an empty configuration is valid without asking the validator."""
    if model.model_config.get("validate_default"):
        return False
    if any(field.is_required() or field.validate_default for field in model.model_fields.values()):
        return False
    decorators = model.__pydantic_decorators__
    return not decorators.model_validators and not decorators.root_validators


def _issues(error: ValidationError) -> list[ConfigIssue]:
    issues: list[ConfigIssue] = []
    for item in error.errors(include_url=False, include_input=False):
        unknown = item["type"] == "extra_forbidden"
        location = tuple(str(part) for part in item["loc"])
        issues.append(ConfigIssue(location, "unknown field" if unknown else item["msg"], unknown))
    return issues


def definition_of(plugin: Any) -> PluginDef:
    """Read what `plugin` declares.

    Raises:
        InvalidPluginError: It is neither a `Plugin` subclass nor a function.
    """
    if isinstance(plugin, type):
        if issubclass(plugin, Plugin):
            return _class_definition(plugin)
        raise InvalidPluginError(f"{plugin!r} is no plugin", hint="derive from dsh.core.Plugin")
    if callable(plugin):
        return function_definition(
            plugin,
            _function_name(plugin),
            getattr(plugin, "injects", ()),
            getattr(plugin, "Config", None),
        )
    raise InvalidPluginError(
        f"{plugin!r} is no plugin", hint="mount a Plugin class or a function taking (ctx, config)"
    )


def validated_config(plugin: PluginLike, config: object) -> object:
    """Return a configuration as the plugin would receive it; nothing is mounted.

    What is returned may be given to `mount`, which does not validate it again.

    Args:
        plugin: A `Plugin` class, or a function taking `(ctx, config)`.
        config: A mapping, or an instance of the plugin's `Config`.

    Raises:
        InvalidPluginError: The object is no plugin.
        ConfigError: A field is unknown or does not fit.
    """
    return definition_of(plugin).validate(config)


def _class_definition(cls: type[Plugin]) -> PluginDef:
    cached = cls.__dict__.get("__dsh_definition__")
    if isinstance(cached, PluginDef):
        return cached
    if inspect.isabstract(cls):
        left: frozenset[str] = getattr(cls, "__abstractmethods__", frozenset())
        lacking = ", ".join(sorted(left))
        raise InvalidPluginError(
            f"{cls.__name__} is abstract and cannot be mounted: it lacks {lacking}",
            hint="implement what it lacks, or mount a provider of it",
        )
    if issubclass(cls, Service) and not hasattr(cls, "service_key"):
        raise InvalidPluginError(
            f"service {cls.__name__} has no key", hint='say key="..." on its interface'
        )
    if isinstance(cls.__dict__.get("config"), BaseModel):
        raise InvalidPluginError(
            f"the config of {cls.__name__} is an object, so nobody's settings would reach it",
            hint="write config = settings(Config)",
        )
    if cls.__init__ is not Plugin.__init__:
        _check_constructor(cls)
    from dsh.core._on import listeners_of

    definition = PluginDef(
        target=cls,
        name=cls.name,
        config_model=getattr(cls, "Config", None),
        injects=_by_key(_injects(cls)),
        listeners=listeners_of(cls),
        is_class=True,
    )
    cls.__dsh_definition__ = definition  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    return definition


def _check_constructor(cls: type[Plugin]) -> None:
    try:
        inspect.signature(cls.__init__).bind(None, None)
    except TypeError:
        raise InvalidPluginError(
            f"the kernel constructs {cls.__name__} with its context alone, which its __init__ "
            "does not take",
            hint="begin in `async def start(self)`; settings and services are there by then",
        ) from None


def _by_key(items: Iterable[Inject[Any]]) -> dict[str, Inject[Any]]:
    """Index by key; what one attribute requires is required, whatever another says."""
    found: dict[str, Inject[Any]] = {}
    for item in items:
        if item.key not in found or not item.optional:
            found[item.key] = item
    return found


def _injects(cls: type[Plugin]) -> list[Inject[Any]]:
    found: dict[str, Inject[Any]] = {}
    for base in reversed(cls.__mro__):
        for attribute, value in vars(base).items():
            if isinstance(value, Inject):
                found[attribute] = value
            elif attribute in found:
                del found[attribute]
    return list(found.values())


def function_definition(
    fn: PluginFunction, name: str, injects: Iterable[Any], model: type[BaseModel] | None
) -> PluginDef:
    """Describe a plugin that is a function and requires the services `injects`."""
    return PluginDef(
        target=fn,
        name=kebab(name),
        config_model=model,
        injects=_by_key(Inject[Any](service, optional=False) for service in injects),
        passes_raw_config=model is None,
    )


def _function_name(fn: Any) -> str:
    for attribute in ("name", "__name__"):
        found = getattr(fn, attribute, None)
        if isinstance(found, str):
            return found
    return type(fn).__name__
