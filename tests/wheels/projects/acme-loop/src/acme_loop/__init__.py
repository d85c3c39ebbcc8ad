"""Another agent loop: one tool at a time, and a wrap-up before a turn gets too long."""

from acme_loop.plugin import AcmeLoop, AcmeLoopConfig

__all__ = ["AcmeLoop", "AcmeLoopConfig"]
