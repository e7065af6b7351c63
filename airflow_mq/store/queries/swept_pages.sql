-- Pages that hold messages for a person that no block set aside: those of queues that were swept. Takes no lock.
SELECT p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size,
       p.slices, p.lengths, p.marks, p.notes
FROM {s}page p
WHERE p.ring = :ring AND p.kept > 0 AND (p.origin, p.page) >= (:origin, :page)
  AND p.origin <= :last
  AND p.kept > (SELECT count(*) FROM {s}aside a WHERE a.ring = p.ring AND a.origin = p.origin AND a.page = p.page)
ORDER BY p.origin, p.page
LIMIT :limit
