"""The kernel: contexts, plugins, services, typed events and reversible registrations.

Five ideas carry it. A plugin is a class with a lifecycle. A context holds services and owns
registrations. A plugin injects the services it needs and waits until they exist. Events are typed
classes. Every registration is a reversible effect of the context that made it.

`dsh.core.vocabulary` is for wheels whose wire values others may add to, `dsh.core.json_schema` for
those that check values against a schema.
"""

from dsh.core import json, secrets
from dsh.core._app import App
from dsh.core._clock import now_ms
from dsh.core._context import Context
from dsh.core._discovery import (
    EntryPoint,
    Requirement,
    entry_point_groups,
    entry_points,
    requirements_of,
    version_of,
)
from dsh.core._effects import Effect
from dsh.core._events import (
    Emit,
    Event,
    Next,
    NextStream,
    Parallel,
    Serial,
    StreamWaterfall,
    Waterfall,
)
from dsh.core._explain import Explanation, MissingService, MountReport
from dsh.core._layers import AnonymousEntries, NamedEntries, ScopedLayers
from dsh.core._lifecycle import MountState
from dsh.core._logging import Failure, install_log_filter, logger_for
from dsh.core._mount import Mount
from dsh.core._on import on
from dsh.core._plugins import (
    Inject,
    Plugin,
    PluginConfig,
    PluginLike,
    Service,
    Settings,
    inject,
    service_key,
    settings,
    validated_config,
)
from dsh.core._scope import Scope, scope_chain, scope_of
from dsh.core._services import Registration
from dsh.core.errors import (
    AbandonedError,
    AppStateError,
    ConfigError,
    ConfigIssue,
    DshError,
    EventDeclarationError,
    EventModeError,
    InactiveContextError,
    InvalidEffectError,
    InvalidPluginError,
    LifecycleDeadlock,
    MissingServiceError,
    NextCalledTwice,
    NotJsonError,
    PluginLoadError,
    ProcessExitError,
    ResourceEndedError,
    ScopeError,
    ServiceConflictError,
    ServiceOwnershipError,
    StrayCancellationError,
    VocabularyError,
)
from dsh.core.json import JsonObject, JsonValue

__all__ = [
    "AbandonedError",
    "AnonymousEntries",
    "App",
    "AppStateError",
    "ConfigError",
    "ConfigIssue",
    "Context",
    "DshError",
    "Effect",
    "Emit",
    "EntryPoint",
    "Event",
    "EventDeclarationError",
    "EventModeError",
    "Explanation",
    "Failure",
    "InactiveContextError",
    "Inject",
    "InvalidEffectError",
    "InvalidPluginError",
    "JsonObject",
    "JsonValue",
    "LifecycleDeadlock",
    "MissingService",
    "MissingServiceError",
    "Mount",
    "MountReport",
    "MountState",
    "NamedEntries",
    "Next",
    "NextCalledTwice",
    "NextStream",
    "NotJsonError",
    "Parallel",
    "Plugin",
    "PluginConfig",
    "PluginLike",
    "PluginLoadError",
    "ProcessExitError",
    "Registration",
    "Requirement",
    "ResourceEndedError",
    "Scope",
    "ScopeError",
    "ScopedLayers",
    "Serial",
    "Service",
    "ServiceConflictError",
    "ServiceOwnershipError",
    "Settings",
    "StrayCancellationError",
    "StreamWaterfall",
    "VocabularyError",
    "Waterfall",
    "entry_point_groups",
    "entry_points",
    "inject",
    "install_log_filter",
    "json",
    "logger_for",
    "now_ms",
    "on",
    "requirements_of",
    "scope_chain",
    "scope_of",
    "secrets",
    "service_key",
    "settings",
    "validated_config",
    "version_of",
]
