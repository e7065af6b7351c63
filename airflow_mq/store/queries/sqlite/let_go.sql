-- No page needs this mail any more, but others borrow from it; unless a neighbouring page still does.
-- Under the ring's lock.
UPDATE {s}loan SET let_go = 1
WHERE lender_ring = :ring AND lender_origin = :origin AND lender_mail = :id AND NOT EXISTS (
    SELECT 1 FROM {s}page p
    WHERE p.ring = :ring AND p.origin = :origin AND p.page BETWEEN :page - 2 AND :page + 2
      AND :id IN (p.first_mail, p.last_mail)
)
