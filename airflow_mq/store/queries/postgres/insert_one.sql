-- A call of one message. Takes no lock that anybody else waits for.
INSERT INTO {s}mail (size, ring, origin, heap) VALUES (%b, %b, %b, %b)
