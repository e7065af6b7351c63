-- Write single messages that processors sent, under ids drawn before. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, heap)
SELECT %(ring)s, w.id, w.origin, w.size, w.heap
FROM unnest(%(id)b::bigint[], %(origin)b::text[], %(size)b::int[], %(heap)b::bytea[]) AS w(id, origin, size, heap)
