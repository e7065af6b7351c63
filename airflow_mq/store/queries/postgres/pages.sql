-- The first stored pages of each origin within bounds. Takes no lock.
SELECT p.origin, p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size,
       p.slices, p.lengths, p.marks, p.notes
FROM unnest(%(origin)b::text[], %(first)b::bigint[], %(last)b::bigint[]) AS w(origin, first, last)
CROSS JOIN LATERAL (
    SELECT * FROM {s}page p
    WHERE p.ring = %(ring)s AND p.origin = w.origin AND p.page BETWEEN w.first AND w.last
    ORDER BY p.page
    LIMIT %(limit)s
) p
