"""A session store that keeps one plain file a session; the smallest one that works."""

from acme_store.plugin import AcmeStore

__all__ = ["AcmeStore"]
