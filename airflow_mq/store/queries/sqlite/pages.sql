-- The first stored pages of an origin within bounds. Takes no lock.
SELECT p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size,
       p.slices, p.lengths, p.marks, p.notes
FROM {s}page p
WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :first AND :last
ORDER BY p.page
LIMIT :limit
