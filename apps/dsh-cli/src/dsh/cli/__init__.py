"""The dsh command: run an agent in a terminal."""

__all__: list[str] = []
