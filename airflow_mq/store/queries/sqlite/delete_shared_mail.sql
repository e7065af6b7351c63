-- Remove mail at the edge of a page that went, unless a neighbour still holds some of it: a mail
-- is at most a page's worth, so it lies in three pages at most, and at an edge of each. Under the ring's lock.
DELETE FROM {s}mail
WHERE ring = :ring AND origin = :origin AND id = :id AND NOT EXISTS (
    SELECT 1 FROM {s}page p
    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :page - 2 AND :page + 2
      AND :id IN (p.first_mail, p.last_mail)
)
