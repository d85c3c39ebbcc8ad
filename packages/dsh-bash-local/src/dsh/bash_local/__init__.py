"""Local bash: commands as supervised child processes."""

from dsh.bash_local._local import Launch, LocalBash

__all__ = ["Launch", "LocalBash"]
