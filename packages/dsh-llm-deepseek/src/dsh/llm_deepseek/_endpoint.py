"""Where requests go: the URL, the proxy on the way and the authorities that are trusted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from dsh.llm import LlmError
from dsh.llm_deepseek import _proxy
from dsh.llm_deepseek._proxy import Proxy
from dsh.llm_deepseek._wire import PATH
from dsh.llm_deepseek.errors import INVALID_ENDPOINT

if TYPE_CHECKING:
    import ssl

    from dsh.llm_deepseek._config import DeepSeekConfig

DEFAULT_BASE_URL: Final = "https://api.deepseek.com"
BASE_URL_VARIABLE: Final = "DEEPSEEK_BASE_URL"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place to send requests to. Equal endpoints may share connections."""

    url: str
    """Where requests are posted."""
    base_url: str
    """The part of it that messages show."""
    proxy: Proxy | None = None
    """The proxy on the way."""
    ca_file: str | None = None
    """PEM file of the authorities to trust; None for the default ones."""
    ca_dir: str | None = None
    """Folder of authorities to trust, in OpenSSL's layout."""

    @property
    def over_tls(self) -> bool:
        """Whether the endpoint itself is reached over TLS."""
        return self.url.startswith("https:")

    @property
    def tls_layers(self) -> int:
        """How many TLS layers a finished connection has."""
        return int(self.over_tls) + int(self.proxy is not None and self.proxy.over_tls)


class EndpointResolver:
    """Works the endpoint out anew when the settings or the environment have changed."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._facts: tuple[object, ...] = ()
        self._endpoint: Endpoint | None = None

    def resolve(self, config: DeepSeekConfig) -> Endpoint:
        """Return the endpoint for one request.

        Raises:
            LlmError: Code `INVALID_ENDPOINT`.
        """
        facts = (config, *(self._environ.get(name) for name in _VARIABLES))
        if self._endpoint is None or facts != self._facts:
            self._endpoint = self._work_out(config)
            self._facts = facts
        return self._endpoint

    def _work_out(self, config: DeepSeekConfig) -> Endpoint:
        source = "base_url"
        base_url = config.base_url
        if base_url is None and (value := self._environ.get(BASE_URL_VARIABLE, "").strip()):
            source, base_url = BASE_URL_VARIABLE, value
        base_url = check_base_url(base_url or DEFAULT_BASE_URL, source)
        parts = urlsplit(base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        ca_file = config.ca_file or self._environ.get("SSL_CERT_FILE") or None
        ca_dir = None if ca_file else self._environ.get("SSL_CERT_DIR") or None
        return Endpoint(
            base_url + PATH,
            base_url,
            _proxy.choose(parts.scheme, parts.hostname or "", port, self._environ),
            None if ca_file is None else str(Path(ca_file).expanduser()),
            ca_dir,
        )


_VARIABLES: Final = (
    BASE_URL_VARIABLE,
    *_proxy.variables("https"),
    *_proxy.variables("http")[:2],
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)


def check_base_url(value: str, source: str) -> str:
    """Return a base URL in the form used here, without a slash or the path of the call at its end.

    Args:
        value: The URL.
        source: Where it comes from, for messages.

    Raises:
        LlmError: Code `INVALID_ENDPOINT`. The message does not repeat the URL, which may hold a
            password.
    """
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable or any(char.isspace() or not char.isprintable() for char in value):
        raise LlmError(
            f"{source} is no http or https URL",
            code=INVALID_ENDPOINT,
            hint=f"use a URL such as {DEFAULT_BASE_URL}",
        )
    if parts.username is not None or parts.password is not None:
        raise LlmError(
            f"{source} contains a user name or a password",
            code=INVALID_ENDPOINT,
            hint="put the key into the environment",
        )
    if parts.query or parts.fragment:
        raise LlmError(
            f"{source} contains a query or a fragment",
            code=INVALID_ENDPOINT,
            hint="end it with the path in front of /chat/completions",
        )
    return value.rstrip("?#").rstrip("/").removesuffix(PATH).rstrip("/")


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Make the context that all connections to `endpoint` share; None if none of them needs it.

    Trusted are the authorities the endpoint names, otherwise those of the operating system,
    otherwise those of the `certifi` package.

    Raises:
        LlmError: Code `INVALID_ENDPOINT`, the authorities cannot be read.
    """
    if endpoint.tls_layers == 0:
        return None
    # Imported here and below, so that importing the wheel stays cheap.
    import ssl

    place = endpoint.ca_file or endpoint.ca_dir
    if place is None:
        return _default_context()
    try:
        return ssl.create_default_context(cafile=endpoint.ca_file, capath=endpoint.ca_dir)
    except OSError as error:
        raise LlmError(
            f"the certificate authorities in {place} cannot be read: {error}",
            code=INVALID_ENDPOINT,
            hint="point ca_file or SSL_CERT_FILE to a PEM file",
        ) from error


def _default_context() -> ssl.SSLContext:
    import ssl

    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    # What lies in a folder is only loaded when it is needed, and is not counted before.
    if not context.cert_store_stats()["x509_ca"] and not (folder and os.listdir(folder)):
        # A minimal container, or an interpreter that does not know the system's store.
        import httpx

        return httpx.create_ssl_context(trust_env=False)
    return context
