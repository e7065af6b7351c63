-- Write groups as they stand; what others charged meanwhile counts, too. Under the ring's lock.
INSERT INTO {s}branch AS g (ring, path, deficit, level, owed)
SELECT %(ring)s, w.path, w.deficit, w.level, w.owed
FROM unnest(%(path)b::text[], %(deficit)b::bigint[], %(level)b::bigint[], %(owed)b::text[]) AS w(path, deficit, level, owed)
ON CONFLICT (ring, path) DO UPDATE SET
    deficit = g.deficit + (
        SELECT d.delta FROM unnest(%(path)b::text[], %(delta)b::bigint[]) AS d(path, delta) WHERE d.path = excluded.path
    ),
    level = least(g.level, excluded.level),
    owed = excluded.owed
