"""Mutation testing of the wheels: what is changed, which tests judge it, what counts."""
