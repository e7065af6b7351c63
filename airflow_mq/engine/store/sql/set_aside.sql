-- Set-aside messages: messages kept for manual handling.

-- part: aside
-- The columns of a set-aside message `a`.
a.origin, a.page, a.item, a.id, a.size, a.weight, a.weight_limit, a.reason, a.block, a.at, a.arrived_at, a.arrived_block

-- part: asides
-- Set-aside messages of a range of queues, after an address.
SELECT {part aside}
FROM {s}set_aside a
WHERE a.ring = :ring AND (a.origin, a.page, a.item) > (:origin, :page, :item)
  AND a.origin <= :last AND (CAST(:reason AS text) IS NULL OR a.reason = :reason)
  AND a.arrived_at < :before AND (CAST(:arrived AS bigint) IS NULL OR a.arrived_block = :arrived)

-- name: save_set_aside
-- Record why messages were set aside. Requires the ring lock.
INSERT INTO {s}set_aside {
    rows ring, origin text[], page bigint[], item int[], id bytea[], size int[], weight bytea[], weight_limit bytea[],
    reason text[], block bigint[], at bigint[], arrived_at bigint[], arrived_block bigint[]
}
ON CONFLICT (ring, origin, page, item) DO UPDATE SET {
    set excluded weight, weight_limit, reason, block, at, arrived_at, arrived_block
}

-- name: asides
-- Return why messages of these pages were set aside.
SELECT {part aside}
FROM {each origin text[], page bigint[]}
JOIN {s}set_aside a ON a.ring = :ring AND a.origin = w.origin AND a.page = w.page

-- name: asides_from
-- Return set-aside messages in order of addresses.
{part asides}
ORDER BY a.origin, a.page, a.item
LIMIT :limit

-- name: asides_of_block
-- Return messages that a block set aside, in order of addresses.
{part asides}
  AND a.block = :block
ORDER BY a.origin, a.page, a.item
LIMIT :limit

-- name: asides_since_block
-- Return set-aside messages that arrived between this block and the one before it, in order of addresses.
{part asides}
  AND a.arrived_block = :arrived
ORDER BY a.origin, a.page, a.item
LIMIT :limit

-- name: count_set_aside
-- Return the number of set-aside messages, in at most `limit` pages.
SELECT coalesce(CAST(sum(k.set_aside) AS bigint), 0)
FROM (SELECT p.set_aside FROM {s}page p WHERE p.ring = :ring AND p.set_aside > 0 LIMIT :limit) k

-- name: delete_aside
-- Delete the records of messages that are no longer set aside. Requires the ring lock.
DELETE FROM {s}set_aside
WHERE ring = :ring AND origin = :origin AND page = :page AND item = :item

-- name: delete_aside (postgres)
DELETE FROM {s}set_aside d
USING {each origin text[], page bigint[], item int[]}
WHERE d.ring = :ring AND d.origin = w.origin AND d.page = w.page AND d.item = w.item
