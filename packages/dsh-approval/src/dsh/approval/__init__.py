"""The approval seam: asking a person before something runs."""

__all__: list[str] = []
