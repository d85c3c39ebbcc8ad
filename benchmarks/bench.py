"""What the rows need: programs run in turns, on one core, against one server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from benchmarks.children import Sample, run
from benchmarks.environment import Environment
from benchmarks.machine import Cores
from benchmarks.report import Figure, median


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    repeat: int
    """Runs of each contestant, behind one that warms up."""
    rounds: int = 20
    many_rounds: int = 1000
    peak_rounds: int = 220
    deltas: int = 20_000
    commands: tuple[int, int] = (20, 220)
    """The cost of one command is the slope between these numbers of commands."""
    agents: int = 200
    idle: int = 500
    events: int = 10_000
    disposed: int = 1000
    flushes: int = 300
    stored_events: int = 100_000
    sessions: int = 10_000

    @classmethod
    def tiny(cls) -> Scale:
        """Return a scale that shows that everything runs, and nothing else."""
        return cls(1, 3, 5, 5, 50, (1, 3), 3, 5, 50, 5, 5, 500, 20)


STORES = ("dsh-cli", "dsh-session-persistence-jsonl[zstd]", "dsh-session-persistence-sqlite")
"""What is installed to measure session stores."""


@dataclass(frozen=True)
class Results:
    """The samples of one contestant."""

    samples: Sequence[Sample]

    def median(self, figure: str) -> float:
        """Return the median of one figure."""
        return median([sample[figure] for sample in self.samples])


@dataclass(frozen=True)
class Bench:
    """Everything a row is measured with."""

    environment: Environment
    cores: Cores
    url: str
    """Where the model is."""
    scale: Scale
    scratch: Path
    """An empty folder."""

    def program(self, name: str, *words: object) -> Sample:
        """Run a program of this folder in the measured environment."""
        argv = [str(self.environment.python), "-m", f"benchmarks.{name}", *map(str, words)]
        return run(argv, core=self.cores.client)

    def stores(self, subject: str, count: int) -> Sample:
        """Measure session stores, in an environment that has all of them."""
        python = self.environment.beside(STORES).python
        words = [str(python), "-m", "benchmarks.stores", subject, str(count)]
        return run(words, core=self.cores.client)

    def floor(self, scenario: str, count: int) -> Sample:
        """Run the floor through a scenario."""
        return self.program("run_floor", scenario, self.url, count)

    def dsh(self, scenario: str, count: int) -> Sample:
        """Run dsh through a scenario."""
        return self.program("run_dsh", scenario, self.url, count)

    def contest(
        self,
        contestants: Mapping[str, Callable[[], Sample]],
        *,
        repeat: int | None = None,
        warm_up: bool = True,
    ) -> Mapping[str, Results]:
        """Run contestants in turns, A B A B, so that the machine's moods meet all of them.

        Args:
            contestants: What to run, by name.
            repeat: How often; as the scale says if not given.
            warm_up: Whether a first run of each is thrown away.
        """
        found: dict[str, list[Sample]] = {name: [] for name in contestants}
        for number in range(-1 if warm_up else 0, repeat or self.scale.repeat):
            for name, contestant in contestants.items():
                sample = contestant()
                if number >= 0:
                    found[name].append(sample)
        return {name: Results(samples) for name, samples in found.items()}


Row: TypeAlias = Callable[[Bench], Sequence[Figure]]
"""Measures something; its docstring says what."""
