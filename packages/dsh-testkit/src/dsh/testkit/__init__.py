"""Contract suites, fixtures and test doubles for plugin authors."""

__all__: list[str] = []
