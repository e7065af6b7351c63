"""Metrics, traces and lineage: `task` takes the reports of a task, and `hooked` those of a queue that a hook opened."""
