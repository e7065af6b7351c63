-- What is in no queue: messages that are not due yet, and those that wait for a person. Takes no lock.
SELECT coalesce((SELECT sum(d.items) FROM {s}delayed d WHERE d.ring = %(ring)s), 0)::bigint,
       (SELECT count(*) FROM {s}aside a WHERE a.ring = %(ring)s)
