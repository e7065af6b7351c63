-- Write messages that go back into their queues, as old as they are. Under the ring's lock.
INSERT INTO {s}mail (ring, id, origin, size, attributes, heap, sent_at)
SELECT %(ring)s, w.id, w.origin, w.size, w.attributes, w.heap,
       'epoch'::timestamptz + w.sent_at * interval '1 microsecond'
FROM unnest(%(id)b::bigint[], %(origin)b::text[], %(size)b::int[], %(attributes)b::bytea[], %(heap)b::bytea[], %(sent_at)b::bigint[])
     AS w(id, origin, size, attributes, heap, sent_at)
