-- Mail that joins its queue later. Takes no lock that anybody else waits for.
INSERT INTO {s}delayed (due, size, items, ring, more, origin, lengths, attributes, heap)
VALUES (%(due)s, %(size)s, %(items)s, %(ring)s, %(more)s, %(origin)s, %(lengths)b, %(attributes)b, %(heap)b)
