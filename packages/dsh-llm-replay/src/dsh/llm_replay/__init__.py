"""Scripted and recorded models, and a test server that speaks the chat-completions wire."""

__all__: list[str] = []
