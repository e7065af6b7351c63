"""Inspection of a ring: queues, blocks, messages, events, history, fairness, forecast, checks."""
