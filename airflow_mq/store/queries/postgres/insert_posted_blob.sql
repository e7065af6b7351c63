-- Write single messages that processors sent, which refer to blobs. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, attributes, heap)
SELECT %(ring)s, w.id, w.origin, w.size, w.attributes, w.heap
FROM unnest(%(id)b::bigint[], %(origin)b::text[], %(size)b::int[], %(attributes)b::bytea[], %(heap)b::bytea[])
    AS w(id, origin, size, attributes, heap)
