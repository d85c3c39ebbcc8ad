"""DeepSeek and other chat-completions endpoints over HTTP and server-sent events."""

__all__: list[str] = []
