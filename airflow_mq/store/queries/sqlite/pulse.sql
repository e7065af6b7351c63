-- How far mail and set-aside messages have come, and whether delayed mail is due. Takes no lock.
-- (By the plus SQLite looks at the newest mail first, instead of reading all of the ring's by another index.)
SELECT coalesce((SELECT m.id FROM {s}mail m WHERE +m.ring = :ring AND m.id > 0 ORDER BY m.id DESC LIMIT 1), 0),
       coalesce((SELECT max(a.at) FROM {s}aside a WHERE a.ring = :ring), 0),
       coalesce((SELECT min(d.due) FROM {s}delayed d WHERE d.ring = :ring) <= :now, false)
