-- What a call sent, when that is a few rows: one statement, committed by itself. Takes no lock
-- that anybody else waits for.
INSERT INTO {s}mail (ring, size, items, more, origin, lengths, attributes, heap)
SELECT %(ring)s, w.size, w.items, w.more, w.origin, w.lengths, w.attributes, w.heap
FROM unnest(
    %(size)b::int[], %(items)b::int[], %(more)b::boolean[], %(origin)b::text[],
    %(lengths)b::bytea[], %(attributes)b::bytea[], %(heap)b::bytea[]
) WITH ORDINALITY AS w(size, items, more, origin, lengths, attributes, heap, place)
ORDER BY w.place
