-- Mail that is due joins its queue, as if it were sent now. Under the ring's lock.
WITH due AS (
    DELETE FROM {s}delayed d WHERE d.ring = %(ring)s AND d.due <= %(now)s RETURNING d.*
)
INSERT INTO {s}mail (size, items, ring, more, origin, lengths, attributes, heap)
SELECT size, items, ring, more, origin, lengths, attributes, heap FROM due ORDER BY due, id
