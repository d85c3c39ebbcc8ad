"""The key of a request: found anew each time, checked, and never shown."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import SecretStr

from dsh.core import secrets
from dsh.llm import LlmError
from dsh.paths import StateFileError, read_private

if TYPE_CHECKING:
    from dsh.llm_deepseek._config import DeepSeekConfig

MAX_KEY_BYTES: Final = 64 * 1024
"""Size of the largest key file that is read; a larger one is refused."""

_log = logging.getLogger("dsh.llm_deepseek")


class KeySource:
    """Finds the key in the environment, otherwise in the file of stored keys."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._warned: set[Path] = set()

    def find(self, config: DeepSeekConfig, provider: str) -> SecretStr | None:
        """Return the key for one request; None if the endpoint needs none and none is there.

        Args:
            config: Names the places to look at.
            provider: Whose key it is, for messages.

        Raises:
            LlmError: `MISSING_CREDENTIAL` or `INVALID_CREDENTIAL`.
        """
        # The key is never a plain local here: these frames end up in tracebacks.
        place, key = self._look(config)
        if not key.get_secret_value():
            if not config.api_key_required:
                return None
            raise _missing(config, provider)
        secrets.add(key.get_secret_value())
        if not _fits_header(key):
            raise LlmError(
                f"the key in {place} has characters that no HTTP header can carry",
                code=LlmError.INVALID_CREDENTIAL,
                hint="copy it again, without spaces, line breaks and quotes",
            )
        return key

    def _look(self, config: DeepSeekConfig) -> tuple[str, SecretStr]:
        if config.api_key is not None:
            return "api_key", SecretStr(config.api_key.get_secret_value().strip())
        if value := self._environ.get(config.api_key_env, "").strip():
            return config.api_key_env, SecretStr(value)
        if config.key_file is None:
            return config.api_key_env, SecretStr("")
        return config.key_file, SecretStr(self._stored(Path(config.key_file).expanduser()))

    def _stored(self, path: Path) -> str:
        try:
            data = read_private(path, limit=MAX_KEY_BYTES)
        except StateFileError as error:
            raise LlmError(
                f"the stored key cannot be read: {error.message}",
                code=LlmError.MISSING_CREDENTIAL,
                hint="store it again with `dsh login`",
            ) from error
        if data is None:
            return ""
        self._warn_if_shared(path)
        return data.decode("utf-8", "replace").strip()

    def _warn_if_shared(self, path: Path) -> None:
        if os.name != "posix" or path in self._warned:
            return
        with suppress(OSError):  # it is gone by now
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                self._warned.add(path)
                _log.warning("other users can read the key in %s; run chmod 600 on it", path)


def _missing(config: DeepSeekConfig, provider: str) -> LlmError:
    if config.key_file is None:
        also, hint = "", ""
    else:
        also, hint = f" and {config.key_file} holds none", ", or store a key with `dsh login`"
    return LlmError(
        f"there is no key for {provider}: {config.api_key_env} is not set{also}",
        code=LlmError.MISSING_CREDENTIAL,
        hint=f"set {config.api_key_env}{hint}",
    )


def _fits_header(key: SecretStr) -> bool:
    return all("\x21" <= char <= "\x7e" for char in key.get_secret_value())
