"""JSON Schema: what is wrong with a value, and what is wrong with a schema."""

from dsh.core.json_schema._check import violations
from dsh.core.json_schema._faults import faults

__all__ = ["faults", "violations"]
