"""Sharded queues: layouts, routing, changes of the layout, and failures of shards."""
