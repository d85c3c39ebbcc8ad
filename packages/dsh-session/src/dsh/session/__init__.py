"""Event-sourced sessions: the append-only log, derived history and the session store."""

__all__: list[str] = []
