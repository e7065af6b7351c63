"""Scenarios by their names on the command line."""

from __future__ import annotations

from . import client_faults, lock_faults, path_faults, server_faults
from .scenario import Scenario

SCENARIOS: dict[str, type[Scenario]] = {
    "restarted-server": server_faults.RestartedServer,
    "immediate-shutdown": server_faults.ImmediateShutdown,
    "terminated-backends": server_faults.TerminatedBackends,
    "idle-connections": server_faults.IdleConnections,
    "disk-full": server_faults.DiskFull,
    "full-log": server_faults.FullLog,
    "server-clock": server_faults.ServerClock,
    "failover": server_faults.Failover,
    "standby-gone": server_faults.StandbyGone,
    "feedback-replica": server_faults.FeedbackReplica,
    "restored-backup": server_faults.RestoredBackup,
    "delayed-path": path_faults.DelayedPath,
    "reset-path": path_faults.ResetPath,
    "black-hole": path_faults.BlackHole,
    "slow-close": path_faults.SlowClose,
    "packet-loss": path_faults.PacketLoss,
    "partition": path_faults.Partition,
    "silent-links": path_faults.SilentLinks,
    "pgbouncer": path_faults.PooledTransactions,
    "held-snapshot": lock_faults.HeldSnapshot,
    "serializable": lock_faults.SerializableSessions,
    "held-ring": lock_faults.HeldRing,
    "locked-tables": lock_faults.LockedTables,
    "maintenance": lock_faults.Maintenance,
    "opposite-senders": client_faults.OppositeSenders,
    "many-parents": client_faults.ManyParents,
    "skewed-clocks": client_faults.SkewedClocks,
    "killed-clients": client_faults.KilledClients,
    "killed-fleet": client_faults.KilledFleet,
    "stopped-clients": client_faults.StoppedClients,
    "stopped-service": client_faults.StoppedService,
    "stopped-in-transaction": client_faults.StoppedInTransaction,
}
