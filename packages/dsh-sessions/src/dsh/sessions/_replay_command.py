"""`dsh replay`: a stored session played again, and what came out differently."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TextIO

import anyio

from dsh.core import JsonValue
from dsh.core import json as djson
from dsh.loader import Deployment, SeamError, explain_bundle, load_bundle
from dsh.session import SessionHeader
from dsh.sessions._console import settings_of, telling_trouble
from dsh.sessions._find import find_session, short_id
from dsh.sessions._open import open_store
from dsh.sessions._text import count, one_line
from dsh.sessions.replay import ReplayReport, replay_session

_SHOWN_CHARS = 400
"""So much of what differs is shown."""


def replay(args: argparse.Namespace) -> int:
    """Play a session again; exit code 1 if anything came out differently."""
    deployment = settings_of(args)
    out = sys.stdout
    with redirect_stdout(sys.stderr):  # what a plugin prints is no part of the output
        header, report = anyio.run(_replay, deployment, args.id)
    _tell(header, report, out)
    return 0 if report.ok else 1


async def _replay(deployment: Deployment, text: str) -> tuple[SessionHeader, ReplayReport]:
    choice = explain_bundle(deployment)
    if choice is None:
        raise SeamError(
            "bundle",
            "nothing can be played again without a bundle, and this deployment has none",
            hint="choose one: --set bundle=agent-core",
        )
    bundle = load_bundle(choice, deployment.where(("bundle",)))
    with telling_trouble(text):
        async with open_store(deployment) as store:
            found = await find_session(store, text)
            events = await store.read_from(found.header.id, 0)
    report = await replay_session(events, found.header, bundle=bundle, config=deployment.agent)
    return found.header, report


def _tell(header: SessionHeader, report: ReplayReport, out: TextIO) -> None:
    name = one_line(short_id(header.id))
    played = ", ".join((_turns(report), count(report.steps, "step"), count(report.events, "event")))
    difference = report.divergence
    if difference is None:
        inherited = count(header.seed_length or 0, "event")
        behind = f", behind {inherited} of the session it was forked from"
        out.write(f"{name}: the same again: {played}{behind if header.seed_length else ''}\n")
        return
    out.write(
        f"{name}: differs at {one_line(str(difference))}, after {played} that were the same\n"
        f"  recorded: {_value(difference.recorded)}\n"
        f"  replayed: {_value(difference.replayed)}\n"
    )


def _turns(report: ReplayReport) -> str:
    if not report.open:
        return count(report.turns, "turn")
    return f"{count(report.turns + 1, 'turn')} ({'the last one ' if report.turns else ''}open)"


def _value(value: JsonValue) -> str:
    return "(nothing)" if value is None else one_line(djson.dumps(value).decode(), _SHOWN_CHARS)
