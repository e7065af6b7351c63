-- Charges: what queues paid for their messages, packed by save.

-- name: insert_charge
-- Write the charges of one save. Requires the ring lock, so that ids are in the order of commits.
INSERT INTO {s}charge (id, ring, block, server, at, data) VALUES (:id, :ring, :block, :server, :at, :data)

-- name: insert_charge (postgres)
INSERT INTO {s}charge (ring, block, server, at, data) VALUES (:ring, :block, :server, :at, :data)

-- name: charges
-- Return charges after an id, in order.
SELECT c.id, c.block, c.server, c.at, c.data FROM {s}charge c WHERE c.ring = :ring AND c.id > :after ORDER BY c.id LIMIT :limit

-- name: expire_charge
-- Delete the oldest charges that are in the sums of their days, and in bills if the ring has any.
DELETE FROM {s}charge WHERE id IN (
    SELECT c.id FROM {s}charge c
    WHERE c.ring = :ring AND c.at > :after AND c.at <= :before
          AND c.id <= (SELECT max(u.last) FROM {s}usage_day u WHERE u.ring = :ring)
          AND c.id <= (
              SELECT coalesce(
                  max(CASE WHEN b.day <= :before / 86400000000 THEN b.last END),
                  CASE WHEN count(*) = 0 THEN 9223372036854775807 ELSE 0 END
              ) FROM {s}bill_day b WHERE b.ring = :ring
          )
    ORDER BY c.at LIMIT :limit {part for_update}
)

-- name: rolled_up
-- Return the id of the last charge that is in the sums of its day.
SELECT coalesce(max(u.last), 0) FROM {s}usage_day u WHERE u.ring = :ring

-- name: usage_days
-- Return the first day that has sums, from a day to before another, with its sums.
SELECT u.day, u.data FROM {s}usage_day u WHERE u.ring = :ring AND u.day >= :first AND u.day < :stop ORDER BY u.day LIMIT 1

-- name: save_usage
-- Write the sums of a day, and the last charge in them. Requires the lock of the ring's settings.
INSERT INTO {s}usage_day (ring, day, last, data) VALUES (:ring, :day, :last, :data)
ON CONFLICT (ring, day) DO UPDATE SET last = excluded.last, data = excluded.data

-- name: close_bill_day
-- Write the header of a day that is over. A day is closed once.
INSERT INTO {s}bill_day (ring, day, last, before, root, leaves) VALUES (:ring, :day, :last, :before, :root, :leaves)

-- name: insert_bill_leaves
-- Write what the bills of a day contain.
INSERT INTO {s}bill_leaf {rows ring, day int, tenant text[], place int[], salt bytea[], path bytea[], data bytea[]}

-- name: bill_days
-- Return closed days in order, from a day to before another; without a first one, the last day of all.
SELECT b.day, b.last, b.before, b.root, b.leaves FROM {s}bill_day b
WHERE b.ring = :ring AND b.day < :stop
  AND b.day >= coalesce(CAST(:first AS int), (SELECT max(l.day) FROM {s}bill_day l WHERE l.ring = :ring))
ORDER BY b.day LIMIT :limit

-- name: bill_leaves
-- Return what the bills of a tenant contain, from a day to before another.
SELECT l.place, l.salt, l.path, l.data
FROM {s}bill_day b JOIN {s}bill_leaf l ON l.ring = b.ring AND l.day = b.day AND l.tenant = :tenant
WHERE b.ring = :ring AND b.day >= :first AND b.day < :stop ORDER BY b.day

-- name: bill_leaves_of
-- Return what the bills of a day contain, of the tenants from one on.
SELECT l.place, l.salt, l.path, l.data, l.tenant FROM {s}bill_leaf l
WHERE l.ring = :ring AND l.day = :day AND l.tenant >= :tenant ORDER BY l.tenant LIMIT :limit
