"""Supervised child processes: groups, a reaper helper, bounded output, deadlines."""

__all__: list[str] = []
