"""`dsh new`: write the project of a plugin."""

from dsh.cli._new._command import command

__all__ = ["command"]
