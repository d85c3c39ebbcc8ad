"""The bash seam: running shell commands in the foreground and the background."""

__all__: list[str] = []
