"""The rows about keeping sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.bench import Bench, Results, Row
from benchmarks.report import Figure, limit, ratio


def flush(bench: Bench) -> Sequence[Figure]:
    """Making a tool round durable as JSON lines."""
    found = _subject(bench, "flush", bench.scale.flushes)
    floor, dsh = found.median("floor"), found.median("dsh")
    return [
        ratio("flush of a round, JSON lines, ms", floor, dsh, most=1.5),
        ratio("  against a sync in a thread", found.median("thread"), dsh),
        ratio("  with the appends", floor, found.median("whole")),
    ]


def commit(bench: Bench) -> Sequence[Figure]:
    """Making a tool round durable in SQLite."""
    found = _subject(bench, "commit", bench.scale.flushes)
    floor = found.median("floor")
    return [
        ratio("flush of a round, SQLite, ms", floor, found.median("dsh"), most=1.5),
        ratio("  with the appends", floor, found.median("whole")),
    ]


def load(bench: Bench) -> Sequence[Figure]:
    """Reading a long log."""
    count = bench.scale.stored_events
    found = _subject(bench, "load", count, repeat=1)
    dsh = found.median("dsh")
    return [
        limit(f"load of {count:,} events, s", dsh, most=1.2),
        ratio("  against parsing into events", found.median("floor"), dsh, most=1.5),
        ratio("  against parsing into dictionaries", found.median("untyped"), dsh),
        limit("  as it is stored by default", found.median("packed"), most=1.2),
    ]


def listing(bench: Bench) -> Sequence[Figure]:
    """Listing many sessions."""
    count = bench.scale.sessions
    found = _subject(bench, "listing", count, repeat=1)
    return [
        limit(f"list of {count:,} sessions, JSON lines, ms", found.median("files"), most=300),
        limit("  SQLite", found.median("database"), most=300),
    ]


def stored(bench: Bench) -> Sequence[Figure]:
    """The room that a long answer takes."""
    count = bench.scale.deltas
    found = _subject(bench, "stored", count, repeat=1)
    return [
        limit(f"{count:,} deltas, bytes for each of their text", found.median("plain"), most=2.3),
        limit("  compressed", found.median("zstd"), most=1.0),
    ]


def _subject(bench: Bench, subject: str, count: int, repeat: int | None = None) -> Results:
    """Measure a subject of `stores`, which takes its medians itself."""
    contestant = {subject: lambda: bench.stores(subject, count)}
    return bench.contest(contestant, repeat=repeat, warm_up=False)[subject]


STORE_ROWS: Mapping[str, Row] = {
    "flush": flush,
    "commit": commit,
    "load": load,
    "listing": listing,
    "stored": stored,
}
