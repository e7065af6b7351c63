"""Sending: packing, limits, inline execution, and commands in transactions of the caller."""
