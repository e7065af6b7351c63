-- Pages that hold messages for a person that no block set aside: those of queues that were swept. Takes no lock.
SELECT p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size,
       p.slices, p.lengths, p.marks, p.notes
FROM {s}page p
WHERE p.ring = %(ring)s AND p.kept > 0 AND (p.origin, p.page) >= (%(origin)s, %(page)s)
  AND p.origin <= %(last)s
  AND p.kept > (SELECT count(*) FROM {s}aside a WHERE a.ring = p.ring AND a.origin = p.origin AND a.page = p.page)
ORDER BY p.origin, p.page
LIMIT %(limit)s
