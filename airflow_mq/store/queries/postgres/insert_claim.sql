-- Write what a block claimed, in the order of its visits. Under the ring's lock.
INSERT INTO {s}claim (ring, block, by_hand, seq, origin, data)
SELECT %(ring)s, %(block)s::bigint, w.by_hand, w.seq, w.origin, w.data
FROM unnest(%(seq)b::int[], %(origin)b::text[], %(data)b::bytea[], %(by_hand)b::boolean[]) AS w(seq, origin, data, by_hand)
