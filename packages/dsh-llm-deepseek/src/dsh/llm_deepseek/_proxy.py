"""Which proxy a request goes through, as the environment says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from dsh.core import secrets
from dsh.llm import LlmError
from dsh.llm_deepseek.errors import INVALID_ENDPOINT

_SCHEMES: Final = ("http", "https")
_SOCKS: Final = ("socks5", "socks5h")


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy to go through."""

    url: str
    """Its address, without credentials."""
    auth: tuple[str, str] | None = field(default=None, repr=False)
    """User name and password."""

    @property
    def over_tls(self) -> bool:
        """Whether the proxy itself is reached over TLS."""
        return self.url.startswith("https:")


def variables(scheme: str) -> tuple[str, ...]:
    """Return the variables that decide for `scheme`, strongest first within each pair."""
    names = [f"{scheme}_proxy", f"{scheme.upper()}_PROXY", "all_proxy", "ALL_PROXY"]
    return (*names, "no_proxy", "NO_PROXY")


def choose(scheme: str, host: str, port: int, environ: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for an endpoint, or None to connect directly.

    Args:
        scheme: `http` or `https`.
        host: Host of the endpoint.
        port: Port of the endpoint.
        environ: The environment. Lower-case names win over upper-case ones, as in curl.

    Raises:
        LlmError: Code `INVALID_ENDPOINT`, the variable names no usable proxy.
    """
    for name in variables(scheme)[:4]:
        # A CGI program gets the request header `Proxy` in this variable.
        if name == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
            continue
        if value := environ.get(name, "").strip():
            break
    else:
        return None
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    return None if bypassed(host, port, excluded) else parse(value, name)


def parse(value: str, name: str) -> Proxy:
    """Read the address of a proxy; its password is registered as a secret.

    Args:
        value: The address, with or without a scheme.
        name: The variable it comes from, for messages.

    Raises:
        LlmError: Code `INVALID_ENDPOINT`.
    """
    try:
        parts = urlsplit(value if "://" in value else f"http://{value}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, None
    if parts is None or not host:
        raise LlmError(
            f"{name} is no proxy address",
            code=INVALID_ENDPOINT,
            hint="use http://host:port",
        )
    if parts.scheme not in _SCHEMES + _SOCKS:
        raise LlmError(
            f"{name} names a proxy with the unknown scheme {parts.scheme!r}",
            code=INVALID_ENDPOINT,
            hint="use http://host:port",
        )
    if parts.scheme in _SOCKS:
        _require_socks(name)
    auth = None
    if parts.username or parts.password:
        auth = (unquote(parts.username or ""), unquote(parts.password or ""))
        secrets.add(auth[1])
        secrets.add(parts.password or "")
    shown_host = f"[{host}]" if ":" in host else host
    default = 1080 if parts.scheme in _SOCKS else 443 if parts.scheme == "https" else 80
    return Proxy(f"{parts.scheme}://{shown_host}:{port or default}", auth)


def bypassed(host: str, port: int, excluded: str) -> bool:
    """Tell whether `NO_PROXY` exempts a host.

    It lists names, which also cover their subdomains, addresses, networks such as `10.0.0.0/8`,
    any of them with a port, and `*` for everything.

    Args:
        host: Host of the endpoint.
        port: Port of the endpoint.
        excluded: The value of the variable.
    """
    host = host.lower().strip("[]").rstrip(".")
    return any(
        _matches(host, port, entry)
        for entry in (part.strip().lower() for part in excluded.replace(" ", ",").split(","))
        if entry
    )


def _matches(host: str, port: int, entry: str) -> bool:
    if entry == "*":
        return True
    name, wanted = _split_port(entry)
    if wanted is not None and wanted != port:
        return False
    if (covers := _covers(name, host)) is not None:
        return covers
    name = name.removeprefix("*").strip(".")
    return bool(name) and (host == name or host.endswith(f".{name}"))


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        name, _, rest = entry[1:].partition("]")
        port = rest.removeprefix(":")
    elif entry.count(":") == 1:
        name, _, port = entry.partition(":")
    else:
        name, port = entry, ""
    return name, int(port) if port.isdecimal() else None


def _covers(network: str, host: str) -> bool | None:
    """Tell whether a network holds an address; None if the host is a name."""
    from ipaddress import ip_address, ip_network

    try:
        address = ip_address(host)
    except ValueError:
        return None
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _require_socks(name: str) -> None:
    from importlib.util import find_spec

    if find_spec("socksio") is None:
        raise LlmError(
            f"{name} names a SOCKS proxy, for which the package socksio is missing",
            code=INVALID_ENDPOINT,
            hint="install httpx[socks], or use an HTTP proxy",
        )
