-- Remember why messages were set aside. Under the ring's lock.
INSERT INTO {s}aside {
    rows ring, block bigint, at bigint, origin text[], page bigint[], item int[], id bytea[], size int[],
    weight bytea[], weight_limit bytea[], reason text[], arrived_at bigint[], arrived_block bigint[]
}
ON CONFLICT (ring, origin, page, item) DO UPDATE SET
    weight = excluded.weight,
    weight_limit = excluded.weight_limit,
    reason = excluded.reason,
    block = excluded.block,
    at = excluded.at,
    arrived_at = excluded.arrived_at,
    arrived_block = excluded.arrived_block
