-- What origins have in no page yet, each of a bounded row of its mail: messages, bytes, the first mail, and how many
-- mails. Takes no lock.
SELECT o.origin, coalesce(sum(f.items), 0)::bigint, coalesce(sum(f.size), 0)::bigint, min(f.id), count(f.id)
FROM unnest(%(origin)b::text[], %(floor)b::bigint[]) AS o(origin, floor)
LEFT JOIN LATERAL (
    SELECT m.id, m.items, m.size FROM {s}mail m WHERE m.ring = %(ring)s AND m.origin = o.origin AND m.id >= o.floor
    ORDER BY m.id LIMIT %(limit)s
) f ON true
GROUP BY o.origin
