"""The error root of every dsh wheel, and the kernel's own errors.

Each class carries a stable `code`; the wording of messages may change, codes do not.

    DshError
    ├── InactiveContextError      INACTIVE_EFFECT
    ├── MissingServiceError       UNDECLARED_SERVICE, INACTIVE_SERVICE
    ├── ServiceConflictError      SERVICE_CONFLICT
    ├── ServiceOwnershipError     SERVICE_OWNERSHIP
    ├── ConfigError               INVALID_CONFIG
    ├── InvalidPluginError        INVALID_PLUGIN        (also a TypeError)
    ├── InvalidEffectError        INVALID_EFFECT        (also a TypeError)
    ├── EventDeclarationError     INVALID_EVENT         (also a TypeError)
    ├── EventModeError            WRONG_EVENT_MODE      (also a TypeError)
    ├── NextCalledTwice           NEXT_CALLED_TWICE
    ├── LifecycleDeadlock         LIFECYCLE_DEADLOCK
    ├── AbandonedError            TEARDOWN_TIMEOUT
    ├── ProcessExitError          PROCESS_EXIT
    ├── ResourceEndedError        RESOURCE_ENDED
    ├── StrayCancellationError    STRAY_CANCELLATION
    ├── AppStateError             APP_NOT_RUNNING, APP_ENTERED
    ├── ScopeError                INVALID_SCOPE
    ├── PluginLoadError           PLUGIN_LOAD
    ├── VocabularyError           BAD_KIND, DUPLICATE_KIND (also a TypeError)
    └── NotJsonError              NOT_JSON, JSON_TOO_DEEP (also a ValueError)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = [
    "AbandonedError",
    "AppStateError",
    "ConfigError",
    "ConfigIssue",
    "DshError",
    "EventDeclarationError",
    "EventModeError",
    "InactiveContextError",
    "InvalidEffectError",
    "InvalidPluginError",
    "LifecycleDeadlock",
    "MissingServiceError",
    "NextCalledTwice",
    "NotJsonError",
    "PluginLoadError",
    "ProcessExitError",
    "ResourceEndedError",
    "ScopeError",
    "ServiceConflictError",
    "ServiceOwnershipError",
    "StrayCancellationError",
    "VocabularyError",
]


class DshError(Exception):
    """An error with a stable code and, where one is known, the way out.

    Args:
        message: What was wrong and where, in one sentence.
        code: Stable identifier; subclasses set it as a class attribute.
        hint: What to do about it.
    """

    code: str = "ERROR"

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message.rstrip('.;')}; {self.hint}"


class InactiveContextError(DshError):
    """Something was registered on a context whose plugin is unloading, failed or disposed."""

    code = "INACTIVE_EFFECT"

    def __init__(self, what: str, owner: str, state: str) -> None:
        super().__init__(f"cannot register {what} on the inactive context of {owner!r} ({state})")


class MissingServiceError(DshError, LookupError):
    """A service was read that the reader may not read, or that is not there."""

    code = "UNDECLARED_SERVICE"
    UNDECLARED = "UNDECLARED_SERVICE"
    """The reader does not inject the service."""
    INACTIVE = "INACTIVE_SERVICE"
    """The reader injects the service, and there is no active provider."""

    def __init__(
        self, key: str, reader: str, reason: Literal["undeclared", "inactive"], type_name: str
    ) -> None:
        self.key = key
        self.reason: Literal["undeclared", "inactive"] = reason
        if reason == "undeclared":
            super().__init__(
                f"{reader!r} reads service {key!r} without injecting it",
                hint=f"add `{key} = inject({type_name})` to the plugin, or use ctx.get()",
            )
        else:
            super().__init__(
                f"{reader!r} reads required service {key!r} while it is not active",
                code=self.INACTIVE,
                hint="app.explain() says why",
            )


class ServiceConflictError(DshError):
    """A second provider of one service key in one realm."""

    code = "SERVICE_CONFLICT"

    def __init__(self, key: str, owner: str, newcomer: str) -> None:
        super().__init__(
            f"service {key!r} is already provided by {owner!r}, so {newcomer!r} cannot provide it",
            hint="remove one of the two, or isolate the key",
        )


class ServiceOwnershipError(DshError):
    """A registration was changed after it had been withdrawn."""

    code = "SERVICE_OWNERSHIP"


@dataclass(frozen=True, slots=True)
class ConfigIssue:
    """One thing that is wrong with a configuration; `str()` of it is a line for people."""

    location: tuple[str, ...]
    """Path of the field; empty for the configuration as a whole."""
    detail: str
    """What is wrong there."""
    unknown: bool = False
    """Whether the model has no such field."""

    def __str__(self) -> str:
        return f"{'.'.join(self.location) or 'config'}: {self.detail}"


class ConfigError(DshError, ValueError):
    """A plugin's configuration does not fit its model.

    Args:
        plugin: Name of the plugin.
        issues: What is wrong, at least one.
    """

    code = "INVALID_CONFIG"

    def __init__(self, plugin: str, issues: Sequence[ConfigIssue]) -> None:
        self.plugin = plugin
        self.issues = tuple(issues)
        told = "; ".join(str(issue) for issue in self.issues)
        super().__init__(f"invalid config of {plugin!r}: {told}")


class InvalidPluginError(DshError, TypeError):
    """The object mounted is neither a plugin class nor a function taking `(ctx, config)`."""

    code = "INVALID_PLUGIN"


class InvalidEffectError(DshError, TypeError):
    """An effect body returned or yielded something that is no cleanup."""

    code = "INVALID_EFFECT"


class EventDeclarationError(DshError, TypeError):
    """An event class is declared wrongly."""

    code = "INVALID_EVENT"


class EventModeError(DshError, TypeError):
    """An event was dispatched or listened to in a mode that is not its own."""

    code = "WRONG_EVENT_MODE"


class NextCalledTwice(DshError):
    """A waterfall listener called `next()` a second time; `next.again()` is for retries."""

    code = "NEXT_CALLED_TWICE"

    def __init__(self, event: str) -> None:
        super().__init__(
            f"a listener of {event!r} called next() twice",
            hint="call next.again() to run everything below once more",
        )


class LifecycleDeadlock(DshError):
    """A wait that could never end, because what it waits for waits for the waiter."""

    code = "LIFECYCLE_DEADLOCK"

    def __init__(
        self,
        chain: Sequence[str],
        hint: str = "use request_dispose() where the end need not be awaited",
    ) -> None:
        self.chain = tuple(chain)
        super().__init__(
            "this wait would never end: " + " waits for ".join(repr(name) for name in chain),
            hint=hint,
        )


class AbandonedError(DshError):
    """A cleanup, a set-up or a start took longer than its grace and was given up."""

    code = "TEARDOWN_TIMEOUT"


class ProcessExitError(DshError):
    """A plugin's code tried to end the process; that is the plugin's failure alone."""

    code = "PROCESS_EXIT"


class StrayCancellationError(DshError):
    """A plugin's code ended cancelled, and nobody had cancelled it; the plugin's failure alone."""

    code = "STRAY_CANCELLATION"


class ResourceEndedError(DshError):
    """A resource or generator body of a plugin ended before it was asked to."""

    code = "RESOURCE_ENDED"


class AppStateError(DshError):
    """An app was used outside its `async with` block, or entered a second time."""

    code = "APP_NOT_RUNNING"
    ENTERED = "APP_ENTERED"
    """The app has been entered before."""


class ScopeError(DshError, ValueError):
    """A scope key or a scope's parent link is not usable."""

    code = "INVALID_SCOPE"


class PluginLoadError(DshError):
    """An installed entry point could not be loaded."""

    code = "PLUGIN_LOAD"


class VocabularyError(DshError, TypeError):
    """A member of an open vocabulary is declared wrongly or declared twice."""

    code = "BAD_KIND"
    BAD_KIND = "BAD_KIND"
    """The tag does not have the form its vocabulary asks for, or may not be used like this."""
    DUPLICATE_KIND = "DUPLICATE_KIND"
    """Another live class has the tag."""


class NotJsonError(DshError, ValueError):
    """A value would not survive a JSON round trip unchanged."""

    code = "NOT_JSON"
    NOT_JSON = "NOT_JSON"
    """It holds something that JSON has no form for, or contains itself."""
    TOO_DEEP = "JSON_TOO_DEEP"
    """It is nested deeper than is read back."""
