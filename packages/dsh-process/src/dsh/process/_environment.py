"""The environment a child gets: the host's, without what it should not know or act on."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

from dsh.core import secrets

__all__ = ["child_environment", "is_secret_name"]

# GIT_AUTHOR_NAME and the like are no credentials, AUTHORIZATION and XAUTHORITY are.
_SECRET_NAME: Final = re.compile(
    r"KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|COOKIE|AUTH(?!ORS?(?:_|$))"
    r"|(?:^|_)(?:PAT|PASS|CREDS)(?:_|$)|[A-Z]_PWD$",
    re.IGNORECASE,
)

_HARMLESS: Final = frozenset({"KEYBOARD", "XKB_DEFAULT_LAYOUT", "TOKENIZERS_PARALLELISM"})

# Files and options a shell would read before the command; ways to ask a person in a window.
_UNWANTED: Final = frozenset({"BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PROMPT_COMMAND"})
_UNWANTED_ASKERS: Final = frozenset({"GIT_ASKPASS", "SSH_ASKPASS", "SUDO_ASKPASS"})
_UNWANTED_PREFIXES: Final = ("DSH_", "BASH_FUNC_")

_FORCED: Final[dict[str, str]] = {
    "NO_COLOR": "1",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "SSH_ASKPASS_REQUIRE": "never",
    # Nobody sits at this terminal: an editor that fails tells the caller at once.
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_SEQUENCE_EDITOR": "false",
}


def is_secret_name(name: str) -> bool:
    """Tell whether a variable of this name is taken for a credential."""
    return name.upper() not in _HARMLESS and _SECRET_NAME.search(name) is not None


def child_environment(
    extra: Mapping[str, str] | None = None, *, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build the environment of a child that acts for a model.

    Left out are variables named like a credential, any variable whose value contains a registered
    secret, every ambient `DSH_*`, exported shell functions and start-up files. Colours, pagers,
    prompts and editors are switched off.

    Args:
        extra: Added last and verbatim: it beats both the scrubbing and the forced values.
        base: What to start from; this process's environment where it is not given.
    """
    source = os.environ if base is None else base
    result = {name: value for name, value in source.items() if _keeps(name, value)}
    result.update(_FORCED)
    if extra:
        result.update(extra)
    return result


def _keeps(name: str, value: str) -> bool:
    return not (
        name in _UNWANTED
        or name in _UNWANTED_ASKERS
        or name.startswith(_UNWANTED_PREFIXES)
        or is_secret_name(name)
        or secrets.contains(value)
    )
