"""`dsh request`: the body of a model request, made again from the log."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Final

import anyio

from dsh.core import DshError, JsonObject
from dsh.llm import LlmRequest, LlmService
from dsh.loader import Deployment, open_app
from dsh.session import SessionEvent, rebuild_request, request_steps
from dsh.session.errors import RebuildError
from dsh.session_persistence import SessionPersistence
from dsh.sessions._console import settings_of, telling_trouble
from dsh.sessions._find import find_session, short_id
from dsh.sessions._open import open_store
from dsh.sessions._text import count
from dsh.sessions.errors import SessionChoiceError

_STEP: Final = re.compile(r"(?:([1-9][0-9]{0,8})\.)?([1-9][0-9]{0,8})")


class UnknownStep(SessionChoiceError, LookupError):
    """The session made no such request."""

    code = RebuildError.STEP_NOT_FOUND


class NoWireForm(DshError):
    """The model of the request is served by something that sends no bytes."""

    code = "NO_WIRE_FORM"


def request(args: argparse.Namespace) -> int:
    """Print a request."""
    step = _STEP.fullmatch(args.step)
    if step is None:
        raise SessionChoiceError(
            f"--step {args.step}: neither a number nor TURN.STEP", hint="for example: --step 3"
        )
    turn = None if step.group(1) is None else int(step.group(1))
    deployment = settings_of(args)
    out = sys.stdout
    with redirect_stdout(sys.stderr):  # what a plugin prints is no part of the output
        body = anyio.run(_body, deployment, args.id, turn, int(step.group(2)))
    if args.raw:
        out.flush()
        out.buffer.write(body)
    else:
        out.write(_laid_out(body) + "\n")
    return 0


async def _body(deployment: Deployment, text: str, turn: int | None, number: int) -> bytes:
    with telling_trouble(text):
        async with open_store(deployment) as store:
            session_id, events = await _read(store, text)
    made = request_of(session_id, events, turn, number)
    async with open_app(_without_recording(deployment)) as app:
        body = app[LlmService].render(made)
    if body is None:
        raise NoWireForm(
            f"{made.model} is served by an adapter that sends no bytes, so there is no body",
            hint="`dsh sessions show --json` shows the events that the request was made of",
        )
    return body


async def _read(store: SessionPersistence, text: str) -> tuple[str, tuple[SessionEvent, ...]]:
    found = await find_session(store, text)
    return found.header.id, await store.read_from(found.header.id, 0)


def request_of(
    session_id: str, events: Sequence[SessionEvent], turn: int | None, number: int
) -> LlmRequest:
    """Return a request of a session: the n-th it made, or that of a step of a turn.

    Raises:
        UnknownStep: There is none.
        RebuildError: The step made no request.
    """
    if turn is not None:
        return _of_turn(session_id, events, turn, number)
    steps = request_steps(events)
    if number > len(steps):
        raise UnknownStep(
            f"session {short_id(session_id)} has no model request {number}: it made "
            f"{count(len(steps), 'request')}",
            hint="--step counts the requests of the whole session; TURN.STEP names one of a turn",
        )
    return rebuild_request(events, *steps[number - 1])


def _of_turn(session_id: str, events: Sequence[SessionEvent], turn: int, step: int) -> LlmRequest:
    try:
        return rebuild_request(events, turn, step)
    except RebuildError as error:
        if error.code != RebuildError.STEP_NOT_FOUND:
            raise
        raise UnknownStep(
            f"session {short_id(session_id)}: {error.message}", hint=error.hint
        ) from error


def _without_recording(deployment: Deployment) -> Deployment:
    """Return the deployment with nothing in it that keeps sessions."""
    rows: JsonObject = {
        row.id: {"use": row.use, "config": row.config}
        for row in deployment.rows
        if not row.disabled and row.use != "record"
    }
    data: JsonObject = {**deployment.data, "plugins": rows}
    data.pop("session_persistence", None)
    return Deployment(data, deployment.layers, deployment.origins, deployment.app)


def _laid_out(body: bytes) -> str:
    """Return a body with its members below each other; numbers and order stay as they are."""
    try:
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    except ValueError:
        return body.decode("utf-8", "replace")
