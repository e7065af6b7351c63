-- What waits of a queue and is in no page yet, of at most so many mails; when the first of all was sent, what came
-- lately, and how much waits for a person, in at most so many pages. Takes no lock.
SELECT :origin AS origin, count(*), coalesce(sum(u.items), 0), coalesce(sum(u.size), 0),
       (SELECT m.sent_at FROM {s}mail m WHERE m.ring = :ring AND m.origin = :origin AND m.id = coalesce(
           (SELECT p.first_mail FROM {s}page p
            WHERE p.ring = :ring AND p.origin = :origin AND p.page >= :begin ORDER BY p.page LIMIT 1),
           (SELECT min(f.id) FROM {s}mail f WHERE f.ring = :ring AND f.origin = :origin AND f.id >= :floor))) AS oldest,
       (SELECT coalesce(sum(l.items), 0) FROM (
           SELECT m.items, m.sent_at FROM {s}mail m
           WHERE m.ring = :ring AND m.origin = :origin ORDER BY m.id DESC LIMIT :latest) l
        WHERE l.sent_at > :since) AS lately,
       (SELECT coalesce(sum(k.kept), 0) FROM (
           SELECT p.kept FROM {s}page p WHERE p.ring = :ring AND p.origin = :origin AND p.kept > 0 LIMIT :most) k) AS kept
FROM (SELECT m.items, m.size FROM {s}mail m
      WHERE m.ring = :ring AND m.origin = :origin AND m.id >= :floor ORDER BY m.id LIMIT :most) u
