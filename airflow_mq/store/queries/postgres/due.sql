-- Mail that is due. Takes no lock.
SELECT d.id, d.due, d.size, d.items, d.more, d.origin, d.lengths, d.attributes, d.heap FROM {s}delayed d WHERE d.ring = %(ring)s AND d.due <= %(now)s ORDER BY d.due, d.id
