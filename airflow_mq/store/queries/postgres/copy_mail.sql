-- What a call sent, in bulk. Takes no lock that anybody else waits for.
COPY {s}mail (size, items, ring, more, origin, lengths, attributes, heap) FROM STDIN (FORMAT BINARY)
