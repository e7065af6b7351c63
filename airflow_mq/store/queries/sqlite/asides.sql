-- Why messages of a page were set aside. Takes no lock.
SELECT a.origin, a.page, a.item, a.id, a.weight, a.weight_limit, a.reason, a.block, a.at
FROM {s}aside a
WHERE a.ring = :ring AND a.origin = :origin AND a.page = :page
