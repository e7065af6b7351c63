"""Deterministic simulation: actors of a queue as interleaved steps under one seeded scheduler, with faults.

- `script`: what a run consists of; drawn from a seed, shrunk, and printed as a test.
- `clock`: the clocks of the database and of the clients, which no run waits for.
- `database`: the one seam, below the drivers' cursors: faults, and borders between statements.
- `scheduler`: exactly one actor runs at a time; the script determines at every border which one continues.
- `world`, `messages`, `invariants`, `liveness`: one ring, what was sent to it, and what must be true of both.
- `crowd`: rings of many more queues than a walk comes to.
- `actors`: senders, block workers, services, lease holders, operators, upgraders, landing folders, and guests of some
  runs: for example readers, uploaders, typed and traced messages, landing by lines, and runs that are skipped for hours.
- `shrinking`: the shortest script that still fails.

`python -m tests.proofs.simulation --help` lists what can be run.
"""
