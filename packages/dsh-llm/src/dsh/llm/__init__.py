"""The model seam: messages, the stream protocol, adapters and the service that routes to them."""

__all__: list[str] = []
