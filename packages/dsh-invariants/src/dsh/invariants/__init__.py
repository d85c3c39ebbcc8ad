"""Run-time invariants of the spine."""

__all__: list[str] = []
