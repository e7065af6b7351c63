-- A piece of a payload. Takes no lock.
SELECT c.data FROM {s}chunk c WHERE c.upload = %(upload)s AND c.seq = %(seq)s
