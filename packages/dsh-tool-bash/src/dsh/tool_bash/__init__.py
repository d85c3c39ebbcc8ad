"""The bash tools a model calls: bash, bash_output and bash_kill."""

__all__: list[str] = []
