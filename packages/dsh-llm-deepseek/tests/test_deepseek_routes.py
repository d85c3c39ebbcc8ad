"""The way to the endpoint: TLS with a private authority, proxies, and what the environment says."""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from dsh.core import secrets
from dsh.llm import Finish, LlmError, LlmRequest, Message, TextBlock
from dsh.llm.testing import collect
from dsh.llm_deepseek import DeepSeekAdapter, DeepSeekConfig
from dsh.llm_deepseek._endpoint import Endpoint, EndpointResolver, tls_context
from dsh.llm_deepseek._proxy import Proxy, bypassed, choose
from dsh.llm_replay import server as wire
from dsh.llm_replay.server import WireServer

KEY = "sk-routes-test"
REQUEST = LlmRequest("deepseek-flash", (Message("user", (TextBlock("hi"),)),))


def adapter_for(environ: Mapping[str, str], **config: Any) -> DeepSeekAdapter:
    return DeepSeekAdapter({"api_key": KEY, **config}, environ=environ)


async def succeeds(adapter: DeepSeekAdapter) -> bool:
    with anyio.fail_after(10):
        chunks = await collect(adapter.stream(REQUEST))
    last = chunks[-1]
    return isinstance(last, Finish) and last.reason.kind == "stop"


async def failure_of(adapter: DeepSeekAdapter) -> LlmError:
    with anyio.fail_after(10), pytest.raises(LlmError) as caught:
        await collect(adapter.stream(REQUEST))
    await adapter.aclose()
    return caught.value


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def server_tls(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate: Any = authority.issue_cert("localhost", "127.0.0.1")
    certificate.configure_cert(context)
    return context


@pytest.fixture
def ca_file(authority: trustme.CA, tmp_path: Path) -> str:
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return str(path)


class ConnectProxy:
    """A proxy that tunnels `CONNECT` and forwards everything else, and remembers what it saw."""

    def __init__(
        self, tls: ssl.SSLContext | None, auth: str | None, refuse: bool, silent: bool
    ) -> None:
        self.tls = tls
        self.auth = auth
        self.refuse = refuse
        self.silent = silent
        self.seen: list[str] = []
        self.heads: list[bytes] = []
        self.url = ""

    async def serve(self, socket: SocketStream) -> None:
        stream: ByteStream = socket
        async with socket:
            if self.tls is not None:
                stream = await TLSStream.wrap(
                    socket, server_side=True, ssl_context=self.tls, standard_compatible=False
                )
            head = b""
            while b"\r\n\r\n" not in head:
                head += await stream.receive()
            self.heads.append(head)
            method, target, _ = head.split(b"\r\n")[0].decode().split(" ")
            self.seen.append(f"{method} {target}")
            if self.silent:
                await anyio.sleep_forever()
            if self.auth is not None:
                wanted = base64.b64encode(self.auth.encode())
                if b"Proxy-Authorization: Basic " + wanted not in head:
                    await stream.send(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                    return
            if self.refuse:
                await stream.send(b"HTTP/1.1 503 No Way\r\n\r\n")
                return
            await self._forward(stream, method, target, head)

    async def _forward(self, stream: ByteStream, method: str, target: str, head: bytes) -> None:
        host, _, port = target.removeprefix("http://").partition("/")[0].partition(":")
        upstream = await anyio.connect_tcp("127.0.0.1" if host == "inner.test" else host, int(port))
        async with upstream:
            if method == "CONNECT":
                await stream.send(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                path = "/" + target.removeprefix("http://").partition("/")[2]
                await upstream.send(head.replace(target.encode(), path.encode(), 1))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pump, upstream, stream, tasks.cancel_scope)
                await pump(stream, upstream, tasks.cancel_scope)


async def pump(source: ByteStream, sink: ByteStream, scope: anyio.CancelScope) -> None:
    try:
        async for data in source:
            await sink.send(data)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        pass
    scope.cancel()


@asynccontextmanager
async def connect_proxy(
    *,
    tls: ssl.SSLContext | None = None,
    auth: str | None = None,
    refuse: bool = False,
    silent: bool = False,
) -> AsyncGenerator[ConnectProxy, None]:
    proxy = ConnectProxy(tls, auth, refuse, silent)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    proxy.url = f"{'https' if tls else 'http'}://127.0.0.1:{port}"

    async def handle(socket: SocketStream) -> None:
        try:
            await proxy.serve(socket)
        except (anyio.EndOfStream, anyio.BrokenResourceError, ssl.SSLError):
            return

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, handle)
        yield proxy
        tasks.cancel_scope.cancel()


async def test_tls_with_a_private_authority_from_the_settings(
    server_tls: ssl.SSLContext, ca_file: str
) -> None:
    async with WireServer(wire.success(), repeat_last=True, ssl_context=server_tls) as server:
        adapter = adapter_for({}, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        assert await succeeds(adapter)
        assert server.connections == 1
        await adapter.aclose()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "SSL_CERT_DIR"])
async def test_tls_with_a_private_authority_from_the_environment(
    server_tls: ssl.SSLContext, ca_file: str, variable: str
) -> None:
    async with WireServer([wire.success()], ssl_context=server_tls) as server:
        value = ca_file
        if variable == "SSL_CERT_DIR":
            value = hashed_folder(Path(ca_file))
        adapter = adapter_for({variable: value}, base_url=server.url)
        assert await succeeds(adapter)
        await adapter.aclose()


def hashed_folder(pem: Path) -> str:
    """Make the folder OpenSSL looks authorities up in: files named by the hash of the subject."""
    context = ssl.create_default_context(cafile=str(pem))
    (info,) = context.get_ca_certs(binary_form=True)
    folder = pem.parent / "hashed"
    folder.mkdir()
    (folder / f"{subject_hash(info)}.0").write_bytes(pem.read_bytes())
    return str(folder)


def subject_hash(der: bytes) -> str:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    subject = x509.load_der_x509_certificate(der).subject
    digest = hashes.Hash(hashes.SHA1())
    digest.update(canonical(subject))
    return f"{int.from_bytes(digest.finalize()[:4], 'little'):08x}"


def canonical(subject: Any) -> bytes:
    """Encode a name as OpenSSL hashes it: lower case, single blanks, UTF-8, no outer tag."""
    out = b""
    for attribute in subject:
        text = " ".join(attribute.value.lower().split()).encode()
        oid = encode_oid(attribute.oid.dotted_string)
        pair = oid + bytes([0x0C, len(text)]) + text
        sequence = bytes([0x30, len(pair)]) + pair
        out += bytes([0x31, len(sequence)]) + sequence
    return out


def encode_oid(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    body = bytes([first * 40 + second, *rest])
    return bytes([0x06, len(body)]) + body


async def test_an_unknown_authority_is_refused(server_tls: ssl.SSLContext) -> None:
    async with WireServer([wire.success()], ssl_context=server_tls) as server:
        error = await failure_of(adapter_for({}, base_url=server.url))
        assert error.code == "TRANSPORT"
        assert "certificate" in error.message.lower()
        assert "ca_file" in (error.hint or "")
        assert not server.attempts


async def test_the_settings_win_over_the_environment(
    server_tls: ssl.SSLContext, ca_file: str, tmp_path: Path
) -> None:
    async with WireServer([wire.success()], ssl_context=server_tls) as server:
        environ = {"SSL_CERT_FILE": str(tmp_path / "absent.pem")}
        adapter = adapter_for(environ, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        await adapter.aclose()


async def test_an_unreadable_file_of_authorities(tmp_path: Path) -> None:
    path = tmp_path / "absent.pem"
    error = await failure_of(adapter_for({}, base_url="https://localhost:1", ca_file=str(path)))
    assert error.code == "INVALID_ENDPOINT"
    assert str(path) in error.message
    path.write_text("no certificate", encoding="utf-8")
    error = await failure_of(adapter_for({}, base_url="https://localhost:1", ca_file=str(path)))
    assert error.code == "INVALID_ENDPOINT"


async def test_an_abort_of_a_tls_stream_closes_it(server_tls: ssl.SSLContext, ca_file: str) -> None:
    async with WireServer([wire.stall(chunks=2), wire.success()], ssl_context=server_tls) as server:
        adapter = adapter_for({}, base_url=server.url, ca_file=ca_file)
        stream = adapter.stream(REQUEST)
        await anext(stream)
        with anyio.fail_after(5):
            await stream.aclose()
            assert await server.attempts[0].finished() == "client-aborted"
        assert await succeeds(adapter)
        await adapter.aclose()


def test_plain_http_builds_no_tls_context(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("a TLS context is built")

    monkeypatch.setattr(ssl, "SSLContext", never)
    monkeypatch.setattr(ssl, "create_default_context", never)

    async def ask() -> None:
        async with WireServer([wire.success()]) as server:
            adapter = adapter_for({}, base_url=server.url)
            assert await succeeds(adapter)
            await adapter.aclose()

    anyio.run(ask)
    assert tls_context(Endpoint("http://h/chat/completions", "http://h")) is None


def test_the_default_authorities_are_those_of_the_system() -> None:
    context = tls_context(Endpoint("https://h/chat/completions", "https://h"))
    assert context is not None
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("empty_folder", [True, False])
def test_without_a_store_of_the_system_certifi_stands_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, empty_folder: bool
) -> None:
    real = ssl.create_default_context

    def without_store(**places: Any) -> ssl.SSLContext:
        return real(**places) if places else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    paths = ssl.get_default_verify_paths()._replace(capath=str(tmp_path) if empty_folder else None)
    monkeypatch.setattr(ssl, "create_default_context", without_store)
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    context = tls_context(Endpoint("https://h/chat/completions", "https://h"))
    assert context is not None
    assert context.cert_store_stats()["x509_ca"] > 0
    assert context.verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"])
async def test_https_goes_through_a_tunnel(
    server_tls: ssl.SSLContext, ca_file: str, name: str
) -> None:
    async with (
        WireServer(wire.success(), repeat_last=True, ssl_context=server_tls) as server,
        connect_proxy() as proxy,
    ):
        adapter = adapter_for({name: proxy.url}, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        assert await succeeds(adapter)
        assert proxy.seen == [f"CONNECT 127.0.0.1:{server.port}"]
        # The proxy sees neither the key nor the request.
        assert KEY.encode() not in b"".join(proxy.heads)
        assert server.attempts[0].headers["authorization"] == f"Bearer {KEY}"
        await adapter.aclose()


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_http_goes_through_a_forwarding_proxy(name: str) -> None:
    async with WireServer([wire.success()]) as server, connect_proxy() as proxy:
        base_url = server.url.replace("127.0.0.1", "inner.test")
        adapter = adapter_for({name: proxy.url}, base_url=base_url)
        assert await succeeds(adapter)
        assert proxy.seen == [f"POST {base_url}/chat/completions"]
        await adapter.aclose()


@pytest.mark.parametrize("over_tls", [True, False])
async def test_a_proxy_that_is_reached_over_tls(
    server_tls: ssl.SSLContext, ca_file: str, over_tls: bool
) -> None:
    tls = server_tls if over_tls else None
    async with (
        WireServer(wire.success(), repeat_last=True, ssl_context=tls) as server,
        connect_proxy(tls=server_tls) as proxy,
    ):
        adapter = adapter_for({"ALL_PROXY": proxy.url}, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        method = "CONNECT" if over_tls else "POST"
        assert [seen.split()[0] for seen in proxy.seen] == [method]
        await adapter.aclose()


async def test_no_proxy_goes_straight(server_tls: ssl.SSLContext, ca_file: str) -> None:
    async with WireServer([wire.success()], ssl_context=server_tls) as server:
        environ = {"HTTPS_PROXY": "http://127.0.0.1:1", "NO_PROXY": "example.org,127.0.0.1"}
        adapter = adapter_for(environ, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        await adapter.aclose()


async def test_a_proxy_with_a_password(server_tls: ssl.SSLContext, ca_file: str) -> None:
    async with (
        WireServer([wire.success()], ssl_context=server_tls) as server,
        connect_proxy(auth="me:p@ssw\u00f6rd-of-proxy") as proxy,
    ):
        right = proxy.url.replace("://", "://me:p%40ssw%C3%B6rd-of-proxy@")
        adapter = adapter_for({"HTTPS_PROXY": right}, base_url=server.url, ca_file=ca_file)
        assert await succeeds(adapter)
        await adapter.aclose()
        assert "p@ssw" not in secrets.redact("my p@ssw\u00f6rd-of-proxy")
        wrong = proxy.url.replace("://", "://me:wrong-password@")
        error = await failure_of(
            adapter_for({"HTTPS_PROXY": wrong}, base_url=server.url, ca_file=ca_file)
        )
        assert error.code == "TRANSPORT"
        assert "407" in error.message
        assert proxy.url in error.message
        assert "wrong-password" not in repr(error) + str(error)


async def test_a_proxy_that_refuses_leaves_the_adapter_usable(
    server_tls: ssl.SSLContext, ca_file: str
) -> None:
    async with (
        WireServer([wire.success()], ssl_context=server_tls) as server,
        connect_proxy(refuse=True) as proxy,
    ):
        adapter = adapter_for({"HTTPS_PROXY": proxy.url}, base_url=server.url, ca_file=ca_file)
        for _ in range(2):
            with pytest.raises(LlmError, match="503 No Way"):
                await collect(adapter.stream(REQUEST))
        proxy.refuse = False
        assert await succeeds(adapter)
        await adapter.aclose()


async def test_a_proxy_that_never_answers_is_a_connection_that_is_never_made(
    server_tls: ssl.SSLContext, ca_file: str
) -> None:
    async with (
        WireServer([wire.success()], ssl_context=server_tls) as server,
        connect_proxy(silent=True) as proxy,
    ):
        adapter = adapter_for(
            {"HTTPS_PROXY": proxy.url}, base_url=server.url, ca_file=ca_file, connect_timeout_s=0.1
        )
        error = await failure_of(adapter)
        assert error.code == "TRANSPORT"
        assert "connect_timeout_s" in (error.hint or "")


async def test_a_tunnel_to_a_server_with_a_wrong_certificate_leaves_nothing_behind(
    server_tls: ssl.SSLContext, ca_file: str
) -> None:
    async with (
        WireServer(wire.success(), repeat_last=True, ssl_context=server_tls) as server,
        connect_proxy() as proxy,
    ):
        environ = {"HTTPS_PROXY": proxy.url}
        adapter = adapter_for(environ, base_url=server.url)
        for _ in range(2):
            with anyio.fail_after(5), pytest.raises(LlmError, match="certificate"):
                await collect(adapter.stream(REQUEST))
        environ["SSL_CERT_FILE"] = ca_file
        assert await succeeds(adapter)
        await adapter.aclose()


async def test_a_change_of_the_environment_counts_from_the_next_request() -> None:
    async with WireServer(wire.success(), repeat_last=True) as server, connect_proxy() as proxy:
        environ: dict[str, str] = {}
        adapter = adapter_for(environ, base_url=server.url)
        assert await succeeds(adapter)
        environ["http_proxy"] = proxy.url
        assert await succeeds(adapter)
        assert len(proxy.seen) == 1
        del environ["http_proxy"]
        assert await succeeds(adapter)
        assert len(proxy.seen) == 1
        await adapter.aclose()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, None),
        ({"HTTPS_PROXY": ""}, None),
        ({"HTTPS_PROXY": "http://p:1"}, Proxy("http://p:1")),
        ({"https_proxy": "http://low:1", "HTTPS_PROXY": "http://up:1"}, Proxy("http://low:1")),
        ({"HTTPS_PROXY": "p:1"}, Proxy("http://p:1")),
        ({"HTTPS_PROXY": "https://p"}, Proxy("https://p:443")),
        ({"HTTPS_PROXY": "http://p"}, Proxy("http://p:80")),
        ({"HTTPS_PROXY": "http://[::1]:3128/"}, Proxy("http://[::1]:3128")),
        ({"HTTPS_PROXY": "http://u:p%3Aw-secret@p:1"}, Proxy("http://p:1", ("u", "p:w-secret"))),
        ({"HTTP_PROXY": "http://p:1"}, None),
        ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ({"HTTPS_PROXY": "http://p:1", "no_proxy": "api.test"}, None),
        ({"ALL_PROXY": "http://all:1"}, Proxy("http://all:1")),
    ],
)
def test_the_proxy_of_an_https_endpoint(environ: dict[str, str], expected: Proxy | None) -> None:
    assert choose("https", "api.test", 443, environ) == expected


def test_a_cgi_program_gets_no_proxy_from_a_request_header() -> None:
    environ = {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}
    assert choose("http", "api.test", 80, environ) is None
    assert choose("http", "api.test", 80, {**environ, "http_proxy": "http://p:1"}) == Proxy(
        "http://p:1"
    )


@pytest.mark.parametrize(
    "value", ["ftp://p:1", "http://", "http://p:port", "://", "socks5://p:1080", "http://[::1"]
)
def test_an_unusable_proxy_says_which_variable(value: str) -> None:
    with pytest.raises(LlmError, match="HTTPS_PROXY") as caught:
        choose("https", "api.test", 443, {"HTTPS_PROXY": value})
    assert caught.value.code == "INVALID_ENDPOINT"


def test_a_proxy_shows_no_password() -> None:
    assert "hush-hush" not in repr(Proxy("http://p:1", ("u", "hush-hush")))


@pytest.mark.parametrize(
    ("host", "port", "excluded", "expected"),
    [
        ("api.test", 443, "", False),
        ("api.test", 443, "api.test", True),
        ("api.test", 443, "API.Test", True),
        ("a.api.test", 443, "api.test", True),
        ("a.api.test", 443, ".api.test", True),
        ("api.test", 443, ".api.test", True),
        ("a.api.test", 443, "*.api.test", True),
        ("xapi.test", 443, "api.test", False),
        ("api.test", 443, "other, api.test", True),
        ("api.test", 443, "other api.test", True),
        ("api.test", 443, "api.test:443", True),
        ("api.test", 443, "api.test:8443", False),
        ("api.test", 443, "*", True),
        ("api.test", 443, " , ,", False),
        ("api.test.", 443, "api.test", True),
        ("localhost", 80, "localhost", True),
        ("10.1.2.3", 80, "10.0.0.0/8", True),
        ("10.1.2.3", 80, "10.1.2.3", True),
        ("10.1.2.3", 80, "10.1.2.3:80", True),
        ("10.1.2.3", 80, "10.1.2.3:81", False),
        ("11.1.2.3", 80, "10.0.0.0/8", False),
        ("10.1.2.3", 80, "2.3", False),
        ("10.1.2.3", 80, "nonsense/99", False),
        ("::1", 80, "::1", True),
        ("::1", 80, "[::1]:80", True),
        ("::1", 80, "[::1]:81", False),
        ("fd00::5", 80, "fd00::/8", True),
    ],
)
def test_who_needs_no_proxy(host: str, port: int, excluded: str, expected: bool) -> None:
    assert bypassed(host, port, excluded) is expected


@pytest.mark.parametrize(
    ("config", "environ", "expected"),
    [
        (None, {}, "https://api.deepseek.com"),
        (None, {"DEEPSEEK_BASE_URL": ""}, "https://api.deepseek.com"),
        (None, {"DEEPSEEK_BASE_URL": " https://e/v1/ "}, "https://e/v1"),
        ("https://c", {"DEEPSEEK_BASE_URL": "https://e"}, "https://c"),
        ("https://c/v1/chat/completions", {}, "https://c/v1"),
    ],
)
def test_where_the_base_url_comes_from(
    config: str | None, environ: dict[str, str], expected: str
) -> None:
    endpoint = EndpointResolver(environ).resolve(DeepSeekConfig(base_url=config))
    assert endpoint.base_url == expected
    assert endpoint.url == f"{expected}/chat/completions"
