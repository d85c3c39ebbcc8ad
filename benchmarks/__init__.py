"""What dsh costs, measured against the smallest loop that does the same work.

`python -m benchmarks` runs everything; the README of this folder says what the rows mean.
"""
