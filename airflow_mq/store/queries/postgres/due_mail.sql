-- Mail of these origins that is due and has not joined yet. Takes no lock.
SELECT d.origin, d.id, d.size, d.items, d.more, d.lengths, d.attributes, d.heap FROM {s}delayed d
WHERE d.ring = %(ring)s AND d.due <= %(now)s AND d.origin = ANY(%(origin)b::text[]) ORDER BY d.due, d.id
