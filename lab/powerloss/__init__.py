"""Real faults of SQLite: power loss, full disks, killed checkpoints and stopped transactions."""
