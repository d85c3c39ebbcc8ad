"""The spine bundle: model seam, sessions, prompt, tools, agents and the loop."""

__all__: list[str] = []
