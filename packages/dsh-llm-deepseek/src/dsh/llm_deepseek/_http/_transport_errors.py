"""What went wrong on the way to the provider, in words a person can use."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Sequence
from typing import cast

import httpcore

from dsh.llm import LlmError, LlmFailure
from dsh.llm_deepseek._call import Call
from dsh.llm_deepseek._endpoint import Endpoint
from dsh.llm_deepseek._limits import Limit
from dsh.llm_deepseek._provider_errors import shown


def silence(call: Call, limit: Limit | None, facts: LlmFailure | None) -> LlmError:
    """Make the error of a time limit that has passed.

    Args:
        call: What was asked, of whom, under which limits.
        limit: Which limit of the reads; None if the request could not be written.
        facts: What is known about the request.
    """
    if limit == "progress":
        name = "progress_timeout_s"
        what = f"sent no payload for {call.limits.progress_s:g} s (progress timeout)"
    else:
        name = "idle_timeout_s"
        doing = "sent no byte" if limit == "idle" else "took no byte"
        what = f"{doing} for {call.limits.idle_s:g} s (idle timeout)"
    return LlmError(
        f"{call.provider} {what}",
        code=LlmError.TIMEOUT,
        hint=f"raise {name} if answers may take longer",
        failure=facts,
    )


def transport(
    cause: Exception, endpoint: Endpoint, call: Call, facts: LlmFailure | None, opening: bool
) -> LlmError:
    """Make the error of a connection that could not be made, or broke.

    Args:
        cause: What the library raised.
        endpoint: Where the connection leads.
        call: What was asked, under which limits.
        facts: What is known about the request.
        opening: Whether the head of the answer was still awaited.
    """
    way = endpoint.base_url
    if endpoint.proxy is not None:
        way += f" through the proxy {endpoint.proxy.url}"
    if isinstance(cause, httpcore.TimeoutException):
        message = f"no connection to {way} within {call.limits.connect_s:g} s"
        hint: str | None = "check the network, or raise connect_timeout_s"
    else:
        message = f"{'cannot reach' if opening else 'lost the connection to'} {way}: {root(cause)}"
        hint = None
        if "CERTIFICATE_VERIFY_FAILED" in message:
            hint = "set ca_file or SSL_CERT_FILE if its certificate authority is a private one"
    return LlmError(message, code=LlmError.TRANSPORT, hint=hint, failure=facts)


def root(error: BaseException) -> str:
    """Return the words of the innermost cause that has any, the operating system's mostly."""
    words, seen = "", set[int]()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        words = _words(current) or words
        # Of several attempts to connect the first one speaks for all.
        current = next(iter(_members(current)), current.__cause__ or current.__context__)
    return shown(words or type(error).__name__, 300)


def bare(error: Exception) -> Exception:
    """Drop the frames of the HTTP library: they hold the headers and with them the key."""
    seen = set[int]()
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = None
        # The library raises `from None` and so hides what the system has said.
        current.__cause__ = current.__cause__ or current.__context__
        pending += [current.__cause__, current.__context__, *_members(current)]
    return error


def _words(error: BaseException) -> str:
    """Return the words of one exception; the system's own for what the system reported."""
    foreign = isinstance(error, (ssl.SSLError, socket.gaierror))
    if isinstance(error, OSError) and not foreign and error.errno:
        return os.strerror(error.errno)
    return str(error)


def _members(error: BaseException) -> Sequence[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return cast("BaseExceptionGroup[BaseException]", error).exceptions
    return ()
