-- A call of one message. Takes no lock that anybody else waits for.
INSERT INTO {s}mail (size, ring, origin, heap) VALUES (%(size)s, %(ring)s, %(origin)s, %(heap)b)
