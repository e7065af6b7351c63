-- Pages that hold messages for a person, from an origin and page on. Takes no lock.
SELECT p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size,
       p.slices, p.lengths, p.marks, p.notes
FROM {s}page p
WHERE p.ring = :ring AND p.kept > 0 AND (p.origin, p.page) >= (:origin, :page)
  AND (CAST(:only AS text) IS NULL OR p.origin = :only)
ORDER BY p.origin, p.page
LIMIT :limit
