"""The agent handle, its events and the registry of live agents."""

__all__: list[str] = []
