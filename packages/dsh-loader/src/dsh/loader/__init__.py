"""Deployments: the configuration file, layers, seam selection and boot diagnosis."""

__all__: list[str] = []
