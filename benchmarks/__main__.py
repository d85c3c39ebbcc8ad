"""Run the benchmarks: `python -m benchmarks [--only ROW ...]`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.bench import Bench, Row, Scale
from benchmarks.children import ChildFailed, server
from benchmarks.environment import Environment, installed
from benchmarks.machine import choose_cores, describe
from benchmarks.report import Figure, table
from benchmarks.rows import ROWS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print.

    Returns:
        0; 1 if a row could not be measured or, with `--strict`, missed its target.
    """
    options = _parser().parse_args(arguments)
    scale = Scale.tiny() if options.smoke else Scale(options.repeat)
    cores = choose_cores()
    print(f"{describe()}; {cores.note}", flush=True)
    figures: list[Figure] = []
    broken = False
    with ExitStack() as stack:
        environment = stack.enter_context(_environment(options.env))
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        url = stack.enter_context(server(environment.python, cores.server))
        bench = Bench(environment, cores, url, scale, Path(scratch))
        for name in options.only or ROWS:
            print(f"measuring {name} ...", flush=True)
            try:
                figures += ROWS[name](bench)
            except ChildFailed as error:
                print(error, file=sys.stderr)
                broken = True
    if options.smoke:
        figures = [replace(figure, target="", met=None) for figure in figures]
    print(f"\n{table(figures)}")
    missed = options.strict and any(figure.met is False for figure in figures)
    return int(broken or missed)


@contextmanager
def _environment(folder: Path | None) -> Generator[Environment]:
    if folder is not None:
        yield Environment(folder.absolute())
        return
    print("building and installing ...", flush=True)
    with installed() as environment:
        yield environment


def _parser() -> argparse.ArgumentParser:
    rows = "".join(f"\n  {name:10} {_first_line(row)}" for name, row in ROWS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="What dsh costs, against the smallest loop that does the same work.",
        epilog=f"rows:{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=ROWS, metavar="ROW", help="only these rows")
    parser.add_argument("--repeat", type=int, default=5, help="runs of each contestant (5)")
    parser.add_argument(
        "--env", type=Path, help="an environment with dsh in it, instead of a freshly built one"
    )
    parser.add_argument("--smoke", action="store_true", help="tiny numbers, to see that it runs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if a target is missed")
    return parser


def _first_line(row: Row) -> str:
    return (row.__doc__ or "").splitlines()[0]


if __name__ == "__main__":
    sys.exit(main())
