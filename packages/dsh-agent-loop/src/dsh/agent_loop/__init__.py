"""The shipped agent loop: turns, steps, cancellation, steering."""

__all__: list[str] = []
