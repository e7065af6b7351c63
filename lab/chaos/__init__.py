"""Chaos harness: client processes under real faults of PostgreSQL, and a verdict over what they acknowledged.

Run `python -m lab.chaos --help`, and `python -m lab.chaos.soak --help` for hours without faults.
"""
