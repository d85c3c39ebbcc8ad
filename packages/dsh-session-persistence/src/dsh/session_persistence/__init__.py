"""The durability seam: the abstract store of session logs."""

__all__: list[str] = []
