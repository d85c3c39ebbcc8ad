"""The `dsh` command: run an agent in a terminal, and see what it is made of."""

from dsh.cli._main import main

__all__ = ["main"]
