-- Forget that messages were set aside. Under the ring's lock.
DELETE FROM {s}aside
WHERE ring = :ring AND origin = :origin AND page = :page AND item = :item
