-- Sums over a whole ring: ready books and their messages and bytes; newcomers, and what is in no page yet; messages
-- that wait for a person, and that are not due. Takes no lock.
SELECT cut.ready, cut.messages, cut.size, fresh.origins, fresh.messages, fresh.size,
       (SELECT coalesce(sum(p.kept), 0) FROM {s}page p WHERE p.ring = :ring AND p.kept > 0),
       (SELECT coalesce(sum(d.items), 0) FROM {s}delayed d WHERE d.ring = :ring)
FROM (SELECT count(b.ticket) AS ready, coalesce(sum(b.messages), 0) AS messages, coalesce(sum(b.size), 0) AS size
      FROM {s}book b WHERE b.ring = :ring) cut,
     (SELECT count(DISTINCT CASE WHEN b.ticket IS NULL THEN m.origin END) AS origins,
             coalesce(sum(m.items), 0) AS messages, coalesce(sum(m.size), 0) AS size
      FROM {s}mail m LEFT JOIN {s}book b ON b.ring = m.ring AND b.origin = m.origin
      WHERE m.ring = :ring AND m.id >= coalesce(b.floor, 0)) fresh
