-- Keep events, packed, in the order in which they happened. Under the ring's lock.
INSERT INTO {s}event (ring, block, at, origin, events, data)
SELECT %(ring)s, %(block)s::bigint, %(at)s::bigint, w.origin, w.events, w.data
FROM unnest(%(origin)b::text[], %(events)b::int[], %(data)b::bytea[]) WITH ORDINALITY AS w(origin, events, data, place)
ORDER BY w.place
