-- Ready books by the oldest mail of the first page of their window. Takes no lock.
SELECT b.origin, p.first_mail FROM {s}book b
JOIN {s}page p ON p.ring = b.ring AND p.origin = b.origin AND p.page = b.begin_page
WHERE b.ring = :ring AND b.ticket IS NOT NULL AND (:text = '' OR instr(b.origin, :text) > 0)
ORDER BY p.first_mail, b.origin
LIMIT :limit
