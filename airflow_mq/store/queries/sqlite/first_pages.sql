-- Of each ready book the first page that waits, and whether nothing of it waits elsewhere. Takes no lock.
SELECT b.origin, b.wake_at, b.messages,
       p.page = b.end_page - 1 AND b.ahead = x'' AND NOT EXISTS (
           SELECT 1 FROM {s}mail m WHERE m.ring = b.ring AND m.origin = b.origin AND m.id >= b.floor
       ) AS whole,
       p.page, p.items, p.used, p.first_index, p.remaining, p.remaining_size, p.first_mail,
       CASE WHEN p.first_index > 0 OR p.marks <> x'' OR p.notes <> x'' THEN p.slices ELSE x'' END,
       p.lengths, p.marks, p.notes
FROM {s}book b
JOIN {s}page p ON p.rowid = (
    SELECT q.rowid FROM {s}page q
    WHERE q.ring = b.ring AND q.origin = b.origin AND q.page >= b.begin_page AND q.page < b.end_page
      AND q.first_index < q.items
    ORDER BY q.page LIMIT 1
)
WHERE b.ring = :ring AND b.ticket IS NOT NULL
