"""The documentation gate, in parts: reading pages, static checks, types, running, environments."""
