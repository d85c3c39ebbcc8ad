"""The tool registry and the pipeline that runs a call."""

__all__: list[str] = []
