-- Give ready books new places in the ring. Under the ring's lock.
UPDATE {s}book b SET ticket = w.ticket
FROM unnest(%(origin)b::text[], %(ticket)b::bigint[]) AS w(origin, ticket)
WHERE b.ring = %(ring)s AND b.origin = w.origin
