-- Events of some queues, each the latest first. Takes no lock.
SELECT e.id, e.origin, e.block, e.at, e.data
FROM unnest(%(origin)b::text[]) AS w(origin)
CROSS JOIN LATERAL (
    SELECT * FROM {s}event e
    WHERE e.ring = %(ring)s AND e.origin = w.origin AND e.id < %(before)s
    ORDER BY e.id DESC
    LIMIT %(limit)s
) e
