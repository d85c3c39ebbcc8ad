"""Local bash: commands as supervised child processes."""

__all__: list[str] = []
