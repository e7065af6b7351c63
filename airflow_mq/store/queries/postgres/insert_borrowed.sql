-- A message that is handed on: mail without bytes of its own. Takes no lock that anybody else waits for.
INSERT INTO {s}mail (id, size, ring, origin, attributes, heap)
VALUES (%(id)s, %(size)s, %(ring)s, %(origin)s, %(attributes)b, '')
