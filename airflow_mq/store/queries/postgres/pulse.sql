-- How far mail and set-aside messages have come, and whether delayed mail is due. Takes no lock.
SELECT coalesce((SELECT max(m.id) FROM {s}mail m WHERE m.ring = %(ring)s), 0),
       coalesce((SELECT max(a.at) FROM {s}aside a WHERE a.ring = %(ring)s), 0),
       coalesce((SELECT min(d.due) FROM {s}delayed d WHERE d.ring = %(ring)s) <= %(now)s, false)
