-- What an origin has in no page yet, of a bounded row of its mail: messages, bytes, the first mail, and how many mails.
-- Takes no lock.
SELECT :origin, coalesce(sum(f.items), 0), coalesce(sum(f.size), 0), min(f.id), count(*)
FROM (SELECT m.id, m.items, m.size FROM {s}mail m WHERE m.ring = :ring AND m.origin = :origin AND m.id >= :floor
      ORDER BY m.id LIMIT :limit) f
