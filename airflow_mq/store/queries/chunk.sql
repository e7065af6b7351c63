-- A piece of a payload. Takes no lock.
SELECT c.data FROM {s}chunk c WHERE c.upload = :upload AND c.seq = :seq
