"""The rows: what is measured, how, and what is to be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import imports
from benchmarks.bench import STORES, Bench, Row
from benchmarks.children import Sample, run
from benchmarks.report import Figure, above, limit, ratio
from benchmarks.store_rows import STORE_ROWS


def start(bench: Bench) -> Sequence[Figure]:
    """From nothing to an answer: `dsh run`, against Python, httpx and one request."""
    url = f"{bench.url}/text"
    floor: list[str | Path] = [bench.environment.python, "-P", "benchmarks/floor.py", url, "hello"]
    command: list[str | Path] = [bench.environment.dsh, "run", "--model", "deepseek/bench", "hello"]
    env = {"DEEPSEEK_BASE_URL": url, "DEEPSEEK_API_KEY": "key", "DSH_HOME": str(bench.scratch)}
    core, scratch = bench.cores.client, bench.scratch

    def ours() -> Sample:
        return run(command, core=core, env=env, cwd=scratch, reports=False)

    found = bench.contest(
        {"floor": lambda: run(floor, core=core, reports=False), "dsh": ours},
        repeat=2 * bench.scale.repeat,
    )
    cpu = [found[name].median("process_cpu") for name in ("floor", "dsh")]
    wall = [found[name].median("process_wall") for name in ("floor", "dsh")]
    return [
        ratio("start and one answer, CPU s", cpu[0], cpu[1], most=2.0),
        ratio("  wall s", wall[0], wall[1]),
    ]


def rounds(bench: Bench) -> Sequence[Figure]:
    """A round with a tool that does nothing."""
    count = bench.scale.rounds
    found = _both(bench, "tool", count)
    floor, dsh = (1000 * value / count for value in found)
    return [above(f"tool round, {count} of them, CPU ms each", floor, dsh, most=1.5)]


def thousand(bench: Bench) -> Sequence[Figure]:
    """A long conversation, in which the floor encodes its history again and again."""
    count = bench.scale.many_rounds
    found = bench.contest(
        {"floor": lambda: bench.floor("tool", count), "dsh": lambda: bench.dsh("tool", count)}
    )
    turn = [found[name].median("cpu") for name in ("floor", "dsh")]
    whole = [found[name].median("process_cpu") for name in ("floor", "dsh")]
    return [
        ratio(f"{count:,} tool rounds, CPU s", turn[0], turn[1], most=1.0),
        ratio("  with the start of the process", whole[0], whole[1]),
    ]


def deltas(bench: Bench) -> Sequence[Figure]:
    """One long answer in many small pieces, every one of them logged."""
    count = bench.scale.deltas

    def ours() -> Sample:
        sample = bench.dsh("deltas", count)
        assert sample["chunks"] > count, "not every delta was logged"
        return sample

    found = bench.contest({"floor": lambda: bench.floor("deltas", count), "dsh": ours})
    floor, dsh = (count / found[name].median("cpu") for name in ("floor", "dsh"))
    share = dsh / floor
    name = f"{count:,} deltas, per CPU second"
    return [Figure(name, floor, dsh, f"{share:.2f}x", "at least 0.5x", share >= 0.5)]


def bash(bench: Bench) -> Sequence[Figure]:
    """A round with a command, all processes of it included."""
    few, many = bench.scale.commands
    contestants: dict[str, Callable[[], Sample]] = {
        "floor few": lambda: bench.floor("bash", few),
        "dsh few": lambda: bench.dsh("bash", few),
        "floor many": lambda: bench.floor("bash", many),
        "dsh many": lambda: bench.dsh("bash", many),
    }
    found = bench.contest(contestants)

    def each(who: str, figure: str) -> float:
        more = found[f"{who} many"].median(figure) - found[f"{who} few"].median(figure)
        return 1000 * more / (many - few)

    cpu, wall = "process_cpu", "process_wall"
    return [
        above("bash round, CPU ms each", each("floor", cpu), each("dsh", cpu), most=3.0),
        ratio("  wall ms", each("floor", wall), each("dsh", wall)),
    ]


def agents(bench: Bench) -> Sequence[Figure]:
    """Many agents in one process."""
    count = bench.scale.agents
    found = bench.contest(
        {
            "floor": lambda: bench.floor("agents", count),
            "apart": lambda: bench.floor("agents-apart", count),
            "dsh": lambda: bench.dsh("agents", count),
        },
        repeat=min(3, bench.scale.repeat),
        warm_up=False,
    )
    shared, apart, dsh = (found[name].median("cpu") for name in ("floor", "apart", "dsh"))
    return [
        ratio(f"{count} agents, 5 rounds each, CPU s", shared, dsh, most=0.5),
        ratio("  against a floor with a client each", apart, dsh),
    ]


def idle(bench: Bench) -> Sequence[Figure]:
    """What an agent that waits keeps in memory."""
    count = bench.scale.idle
    traced = bench.program("memory", "idle", count)
    resident = bench.program("memory", "resident", count)
    return [
        limit(f"idle agent, one of {count}, KiB", traced["used"], most=60),
        limit("  resident", resident["used"], most=60),
        Figure("  before its first turn", None, traced["new"]),
    ]


def peak(bench: Bench) -> Sequence[Figure]:
    """The most memory a long conversation needs."""
    count = bench.scale.peak_rounds
    found = bench.contest(
        {"floor": lambda: bench.floor("tool", count), "dsh": lambda: bench.dsh("tool", count)},
        warm_up=False,
    )
    floor, dsh = (found[name].median("peak_mb") for name in ("floor", "dsh"))
    return [limit(f"peak memory after {count} rounds, MB", dsh, most=80, floor=floor)]


def growth(bench: Bench) -> Sequence[Figure]:
    """What events and agents leave behind."""
    events = bench.program("memory", "events", bench.scale.events)
    disposed = bench.program("memory", "disposed", bench.scale.disposed)
    return [
        limit("logged event beyond its text, bytes", events["bytes"], most=1024),
        limit("disposed agent, bytes that stay", disposed["bytes"], most=64),
    ]


def dispatch(bench: Bench) -> Sequence[Figure]:
    """An event for ten listeners."""
    found = bench.contest({"all": lambda: bench.program("dispatch")})["all"]
    loop, emit = found.median("loop"), found.median("emit")
    return [
        ratio("event to 10 listeners, CPU ns", loop, emit, most=3.0),
        ratio("  of one scope", loop, found.median("scoped"), most=3.0),
        Figure("  waterfall through 10 listeners", None, found.median("waterfall")),
    ]


def size(bench: Bench) -> Sequence[Figure]:
    """What installing `dsh` brings along."""
    found = bench.environment.contents()
    print(f"  foreign: {', '.join(found.foreign)}")
    return [
        limit("foreign distributions", len(found.foreign), most=25),
        limit("installed size, MB", found.source_mb, most=30),
        Figure("  bytecode on top", None, found.compiled_mb),
    ]


def imported(bench: Bench) -> Sequence[Figure]:
    """What importing each wheel costs, in shares of what importing httpx costs.

    That is every wheel but the test kit, which is imported by tests and loads pytest.
    """
    environment = bench.environment.beside(STORES)
    modules = [imports.YARDSTICK, *imports.wheels(environment.site_packages)]
    python, core = environment.python, bench.cores.client
    httpx, *wheels = imports.costs(python, modules, core, 2 * bench.scale.repeat)
    yardstick = httpx.all_ms
    figures: list[Figure] = []
    for cost in wheels:
        surplus = f", without {', '.join(cost.surplus)}" if cost.surplus else ""
        figures.append(
            Figure(
                f"import {cost.module}, own ms of {cost.all_ms:.0f}",
                yardstick,
                cost.own_ms,
                f"{cost.own_ms / yardstick:.2f}x",
                f"at most {cost.budget:g}x{surplus}",
                cost.fits(yardstick),
            )
        )
    return figures


def _both(bench: Bench, scenario: str, count: int) -> tuple[float, float]:
    found = bench.contest(
        {"floor": lambda: bench.floor(scenario, count), "dsh": lambda: bench.dsh(scenario, count)},
        repeat=2 * bench.scale.repeat,
    )
    return found["floor"].median("cpu"), found["dsh"].median("cpu")


ROWS: Mapping[str, Row] = {
    "start": start,
    "rounds": rounds,
    "thousand": thousand,
    "deltas": deltas,
    "bash": bash,
    "agents": agents,
    "idle": idle,
    "peak": peak,
    "growth": growth,
    "dispatch": dispatch,
    **STORE_ROWS,
    "size": size,
    "imports": imported,
}
