-- Of each ready book the first page that waits, and whether nothing of it waits elsewhere. Takes no lock.
SELECT b.origin, b.wake_at, b.messages,
       p.page = b.end_page - 1 AND b.ahead = '' AND (
           SELECT true FROM {s}mail m WHERE m.ring = b.ring AND m.origin = b.origin AND m.id >= b.floor LIMIT 1
       ) IS NULL AS whole,
       p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size, p.first_mail,
       CASE WHEN p.first_index > 0 OR p.marks <> '' OR p.notes <> '' THEN p.slices ELSE '' END,
       p.lengths, p.marks, p.notes
FROM {s}book b
CROSS JOIN LATERAL (
    SELECT * FROM {s}page q
    WHERE q.ring = b.ring AND q.origin = b.origin AND q.page >= b.begin_page AND q.page < b.end_page
      AND q.first_index < q.items
    ORDER BY q.page LIMIT 1
) p
WHERE b.ring = %(ring)s AND b.ticket IS NOT NULL
