"""What can be wrong with a deployment, as errors that name the file, the path and the way out.

DshError
├── ConfigFileError     CONFIG_FILE       a file cannot be read, parsed or is no mapping
├── ConfigKeyError      CONFIG_KEY        an unknown key, or a value of the wrong kind
├── InterpolationError  INTERPOLATION     `${...}` names nothing that exists
├── PluginNameError     UNKNOWN_PLUGIN    a row names a plugin that is not installed
├── RowError            ROW_FAILED        a plugin could not be imported, or is none
├── SeamError           SEAM              a service key or the bundle: none installed, or too many
├── PinError            PIN               a wheel has another version than the bundle pins
└── BootError           BOOT              some plugins did not become active
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from dsh.core import DshError, Requirement

__all__ = [
    "BootError",
    "ConfigFileError",
    "ConfigKeyError",
    "InterpolationError",
    "PinError",
    "PluginNameError",
    "Problem",
    "RowError",
    "SeamError",
]


class ConfigFileError(DshError):
    """A deployment file cannot be used as a whole.

    Args:
        stage: `read` (missing, unreadable, too large), `parse` (no strict YAML) or `validate`
            (not a mapping).
        where: The file, with the line where one is known.
        detail: What was wrong there.
        hint: What to do about it.
    """

    code = "CONFIG_FILE"

    def __init__(
        self,
        stage: Literal["read", "parse", "validate"],
        where: str,
        detail: str,
        *,
        hint: str | None = None,
    ) -> None:
        self.stage: Literal["read", "parse", "validate"] = stage
        self.where = where
        self.detail = detail
        super().__init__(f"{where}: {detail}", hint=hint)


class ConfigKeyError(DshError, ValueError):
    """One key of a deployment is unknown or holds the wrong kind of value.

    Args:
        where: The layer, with the line where one is known.
        path: The dotted path of the key.
        detail: What was wrong with it.
        hint: The nearest match, or what is allowed.
        unknown: Whether there is no such key.
    """

    code = "CONFIG_KEY"

    def __init__(
        self,
        where: str,
        path: str,
        detail: str,
        *,
        hint: str | None = None,
        unknown: bool = False,
    ) -> None:
        self.unknown = unknown
        self.where = where
        self.path = path
        self.detail = detail
        super().__init__(f"{where}: {path}: {detail}", hint=hint)


class InterpolationError(DshError, ValueError):
    """A `${...}` cannot be resolved."""

    code = "INTERPOLATION"

    def __init__(self, where: str, path: str, detail: str, *, hint: str | None = None) -> None:
        self.where = where
        self.path = path
        super().__init__(f"{where}: {path}: {detail}", hint=hint)


class PluginNameError(DshError, LookupError):
    """A row names a plugin that nothing installed offers."""

    code = "UNKNOWN_PLUGIN"


class RowError(DshError):
    """The plugin of a row did not load, or is no plugin.

    Args:
        row: The id of the row.
        where: The layer the row comes from.
        detail: What went wrong.
        hint: What to do about it.
    """

    code = "ROW_FAILED"

    def __init__(
        self,
        row: str,
        where: str,
        detail: str,
        *,
        hint: str | None = None,
    ) -> None:
        self.row = row
        self.where = where
        super().__init__(f"{where}: plugin {row!r}: {detail}", hint=hint)


class SeamError(DshError, LookupError):
    """What something needs has no candidate installed, or several that are equal.

    Args:
        key: The service key, or `bundle`.
        message: What was looked for.
        candidates: Names of what is installed.
        hint: What to install, or the line of `dsh.yaml` that picks one.
    """

    code = "SEAM"

    def __init__(
        self, key: str, message: str, *, candidates: Sequence[str] = (), hint: str | None = None
    ) -> None:
        self.key = key
        self.candidates = tuple(candidates)
        super().__init__(message, hint=hint)


class PinError(DshError):
    """Wheels that are made for each other are not all of the version that goes together.

    Args:
        distribution: The distribution whose requirements are not met.
        version: Its version.
        unmet: The requirements that are not, at least one; each has a pin.
    """

    code = "PIN"

    def __init__(self, distribution: str, version: str, unmet: Sequence[Requirement]) -> None:
        self.distribution = distribution
        self.version = version
        self.unmet = tuple(unmet)
        told = ", ".join(
            f"{item.name} {item.pin} ({item.installed or 'none'} is installed)" for item in unmet
        )
        command = " ".join(f"{item.name}=={item.pin}" for item in unmet)
        super().__init__(
            f"{distribution} {version} needs {told}", hint=f"run: pip install {command}"
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Why one plugin of the deployment is not active."""

    name: str
    """The row id, or the name of a plugin that a row mounted."""
    kind: Literal["failed", "pending", "missing"]
    """`failed`: it did not load, or raised; `pending`: it waits for services; `missing`: it is
    still starting, or was disposed while the app started."""
    reason: str
    """One sentence: the error, or what it waits for and who could provide it."""
    error: BaseException | None = None
    """What it raised, for `failed`."""


class BootError(DshError):
    """Some plugins of the deployment did not become active.

    The message has one line for each of them. `stack` holds the traceback of the deepest cause of
    the first failure, for a log or a debug switch; it is never part of the message.

    Args:
        problems: At least one.
        hint: What to do, if one thing helps.
    """

    code = "BOOT"

    def __init__(self, problems: Sequence[Problem], *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 plugin did not start" if count == 1 else f"{count} plugins did not start"
        lines = [f"  {item.name}: {item.reason}" for item in self.problems]
        super().__init__("\n".join([head, *lines]), hint=hint)

    @property
    def stack(self) -> str:
        """The traceback of the deepest cause of the first failure, or an empty string."""
        error = next((item.error for item in self.problems if item.error is not None), None)
        if error is None:
            return ""
        # only a debug switch prints it
        from traceback import format_exception

        return "".join(format_exception(deepest_cause(error)))


def deepest_cause(error: BaseException) -> BaseException:
    """Follow `__cause__`, single-member groups and shown contexts to the original exception."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        members = _members(error)
        if len(members) == 1:
            error = members[0]
        elif error.__cause__ is not None:
            error = error.__cause__
        elif error.__context__ is not None and not error.__suppress_context__:
            error = error.__context__
        else:
            break
    return error


def _members(error: BaseException) -> tuple[BaseException, ...]:
    if not isinstance(error, BaseExceptionGroup):
        return ()
    return cast("BaseExceptionGroup[BaseException]", error).exceptions
