-- Origins by name, from one on: those with a book and those that only have mail. Takes no lock.
SELECT b.origin FROM {s}book b
WHERE b.ring = %(ring)s AND b.origin > %(after)s AND b.origin >= %(first)s AND b.origin < %(below)s AND (b.pages > 0 OR b.ticket IS NOT NULL)
ORDER BY b.origin
LIMIT %(limit)s
