"""Chaos harness: client processes under real faults of PostgreSQL, and a verdict over what they acknowledged.

Run `python -m tests.chaos --help`, and `python -m tests.chaos.soak --help` for hours without faults.
"""
