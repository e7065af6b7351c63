-- A worker keeps its lease from one service to the next while messages come. A process that finds the ring in use sets
-- this flag, and the worker gives the lease back. To take the lease clears the flag.

ALTER TABLE {s}state ADD COLUMN lease_wanted boolean NOT NULL DEFAULT false;
