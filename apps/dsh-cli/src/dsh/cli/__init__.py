"""The `dsh` command: run an agent in a terminal, and see what it is made of."""

from collections.abc import Sequence

from dsh.cli._starting import Starting

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the `dsh` command and return its exit code.

    Args:
        argv: The arguments after the command's name; those of the process if not given.
    """
    with Starting():
        from dsh.cli._main import main as run
    return run(argv)
