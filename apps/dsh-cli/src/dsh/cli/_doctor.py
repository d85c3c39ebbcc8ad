"""`dsh doctor`: what is installed, what is used and why, and what is missing."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout

from dsh.cli._doctor_facts import Examination
from dsh.cli._exit_codes import ERROR, OK
from dsh.cli._out import Out, stdout
from dsh.core import json as djson


def command(args: argparse.Namespace) -> int:
    """Examine the installation and the settings; exit 1 if something needed is missing."""
    found = Examination(args)
    out = stdout()
    with redirect_stdout(sys.stderr):  # what a plugin prints is no part of the report
        found.run()
    if args.json:
        out.line(djson.dumps(found.as_json()).decode())
    else:
        _print(found, out)
    return ERROR if found.problems else OK


def _print(found: Examination, out: Out) -> None:
    for title, facts in found.sections.items():
        out.write(f"{title}\n")
        width = max((len(fact.name) for fact in facts), default=0)
        for fact in facts:
            out.write(f"  {fact.name.ljust(width)}  {fact.text}\n")
    for note in found.notes:
        out.write(f"note: {note}\n")
    for problem in found.problems:
        out.write(f"problem: {problem.text}\n")
        if problem.hint:
            out.write(f"         {problem.hint}\n")
    if not found.problems:
        out.write("everything needed is there\n")
    out.flush()
