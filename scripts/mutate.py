"""Mutation testing: changes the code a little, many times, and asks the tests to notice.

The first pass runs the tests on asyncio only, without the slowest. `--rest` runs the survivors once
more against all tests, on both backends, and imports the code anew for each, so that what runs at
import counts too. Results are kept in `.mutation`, so a run that is broken off goes on where it
was, and only functions that have changed are tested anew. A mutant that hangs is killed.

Exits 1 if fewer mutants are killed than the target wants, or if `scripts/mutation/equivalent.toml`
excuses something that is no survivor.

Usage: `uv run --group mutation python scripts/mutate.py TARGET [--rest] [--show]`, and
`... TARGET --only GLOB` or `--sample N`.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
from collections.abc import Sequence
from pathlib import Path

from mutation import engine, equivalents
from mutation.results import Mutant, results
from mutation.targets import TARGETS, Target

ROOT = Path(__file__).resolve().parent.parent


def report(target: Target, mutants: Sequence[Mutant], *, every: bool = True) -> tuple[str, int]:
    """Return what is to be said of the results, and the exit code.

    Args:
        target: What was mutated.
        mutants: All of its mutants.
        every: Whether the equivalents have to be survivors, as after a whole run.
    """
    entries = equivalents.read()
    judged = [
        mutant
        for mutant in mutants
        if mutant.killed
        or mutant.status == "not checked"
        or not any(entry.covers(mutant) for entry in entries)
    ]
    killed = [m for m in judged if m.killed]
    open_ = [m for m in judged if m.status == "not checked"]
    lines: list[str] = []
    for mutant in judged:
        if not mutant.killed and mutant.status != "not checked":
            before = mutant.before.replace("\n", "\n  - ")
            after = mutant.after.replace("\n", "\n  + ")
            lines.append(f"{mutant.name} ({mutant.file}, {mutant.function}: {mutant.status})")
            lines.append(f"  - {before}\n  + {after}")
    old = equivalents.stale(entries, mutants) if every and not open_ else []
    for entry in old:
        lines.append(f"excused, but no survivor: {entry}")
    tested = len(judged) - len(open_)
    score = 100.0 * len(killed) / max(tested, 1)
    lines.append(
        f"{target.name}: {len(killed)} of {tested} killed, {score:.1f} %; "
        f"{len(mutants) - len(judged)} more are equivalent, {len(open_)} were not tested"
    )
    return "\n".join(lines) + "\n", 1 if old or open_ or score < target.floor else 0


def _chosen(target: Target, bench: Path, glob: str, sample: int | None) -> list[str]:
    """Return the names of the survivors that fit, or of a sample of what was not tested."""
    mutants = results(target, bench)
    if sample:
        picked = mutants[::sample]
        return [mutant.name for mutant in picked if mutant.status == "not checked"]
    return [
        mutant.name
        for mutant in mutants
        if not mutant.killed
        and mutant.status != "not checked"
        and fnmatch.fnmatchcase(mutant.name, glob)
    ]


def main(arguments: list[str] | None = None) -> int:
    """Mutate what is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", choices=[target.name for target in TARGETS])
    parser.add_argument("--rest", action="store_true", help="the survivors, against all tests")
    parser.add_argument("--show", action="store_true", help="the results there are; run nothing")
    parser.add_argument("--only", metavar="GLOB", help="survivors whose name fits, again")
    parser.add_argument("--sample", metavar="N", type=int, help="every N-th mutant not yet tested")
    args = parser.parse_args(arguments)
    target = next(target for target in TARGETS if target.name == args.target)
    bench = ROOT / ".mutation" / target.name
    if not args.show:
        bench = engine.lay_out(target, ROOT, everything=args.rest)
        engine.generate(bench)
        engine.check_names(target, bench)
        options = engine.chosen_tests(target, every=args.rest)
        if args.rest or args.only or args.sample:
            names = _chosen(target, bench, args.only or "*", args.sample)
            if names:
                engine.run(bench, names=names, options=options)
        else:
            engine.run(bench, options=options)
    text, code = report(target, results(target, bench))
    sys.stdout.write(text)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
