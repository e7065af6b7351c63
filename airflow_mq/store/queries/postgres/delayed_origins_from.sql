-- Origins by name that have mail which is not due. Reads all such mail. Takes no lock.
SELECT DISTINCT d.origin FROM {s}delayed d
WHERE d.ring = %(ring)s AND d.origin >= %(first)s AND d.origin < %(below)s
LIMIT %(limit)s
