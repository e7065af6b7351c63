-- Origins: pauses, settings, groups with their deficits, and measured work.

-- name: pause
-- Pause an origin, or replace its pause.
INSERT INTO {s}pause (ring, origin, reason, who, at, until, below)
VALUES (:ring, :origin, :reason, :who, :now, :until, :below)
ON CONFLICT (ring, origin) DO UPDATE SET {set excluded reason, who, at, until, below}

-- name: resume
-- Resume an origin.
DELETE FROM {s}pause WHERE ring = :ring AND origin = :origin

-- name: paused
-- Return paused origins.
SELECT p.origin, p.reason, p.who, p.at, p.until, p.below FROM {s}pause p
WHERE p.ring = :ring AND (p.until IS NULL OR p.until > :now)
ORDER BY p.origin

-- name: halted
-- Return groups that are paused with everything below them, groups whose buckets are exhausted and, if wanted, origins
-- whose buckets are. The outermost group, whose path is empty, has no bucket.
SELECT p.origin, false FROM {s}pause p WHERE p.ring = :ring AND p.below AND (p.until IS NULL OR p.until > :now)
UNION ALL
SELECT k.path, true FROM {s}origin_group g
JOIN {s}bucket k ON k.ring = g.ring AND k.path = substr(g.path, 1, abs(length(g.path) - 1))
WHERE g.ring = :ring AND k.wake_at > :now
UNION ALL
SELECT k.path, true FROM {s}bucket k WHERE :origins AND k.ring = :ring AND k.wake_at > :now

-- name: buckets
-- Return the stored buckets of these origins and groups.
SELECT k.path, k.balance, k.wake_at, k.terms FROM {each path text[]} JOIN {s}bucket k ON k.ring = :ring AND k.path = w.path

-- name: save_bucket
-- Write buckets. If their settings changed since they were read, the next plan looks at their queues. Requires the ring
-- lock.
INSERT INTO {s}bucket AS k {rows ring, path text[], balance text[], wake_at bigint[], terms bigint[]}
ON CONFLICT (ring, path) DO UPDATE SET
    balance = excluded.balance,
    wake_at = CASE WHEN k.terms = excluded.terms THEN excluded.wake_at ELSE -1 END

-- name: renew_bucket
-- Let the queues of a bucket no longer wait, because its settings changed: the next plan looks at them. The bucket is
-- full if it is not kept.
INSERT INTO {s}bucket AS k (ring, path, balance, terms) VALUES (:ring, :path, '', 1)
ON CONFLICT (ring, path) DO UPDATE SET
    balance = CASE WHEN :kept THEN k.balance ELSE '' END,
    wake_at = CASE WHEN k.wake_at > 0 THEN -1 ELSE k.wake_at END,
    terms = k.terms + 1

-- name: lock_setting
-- Return the settings of an origin, and let no other transaction change them. It waits for no sender.
INSERT INTO {s}setting AS t (ring, origin, settings, guaranteed) VALUES (:ring, :origin, '{}', false)
ON CONFLICT (ring, origin) DO UPDATE SET settings = t.settings
RETURNING settings

-- name: set_setting
-- Write the settings of an origin.
INSERT INTO {s}setting (ring, origin, settings, guaranteed, quota)
VALUES (:ring, :origin, {json settings}, :guaranteed, :quota)
ON CONFLICT (ring, origin) DO UPDATE SET {set excluded settings, guaranteed, quota}

-- name: fullness (postgres)
-- Return how full the queues and groups with a quota are to which messages of these books and sizes go.
SELECT f.path, f.quota, f.stored, f.coming, f.uncut FROM {s}fullness(:ring, :names::text[], :sizes::int8[]) f

-- name: settings
-- Return the settings of these origins and groups.
SELECT t.origin, t.settings FROM {each origin text[]} JOIN {s}setting t ON t.ring = :ring AND t.origin = w.origin

-- name: all_settings
-- Return the settings of all origins and groups.
SELECT t.origin, t.settings FROM {s}setting t WHERE t.ring = :ring

-- name: groups
-- Return the groups of a ring with paths.
SELECT g.path, g.deficit, g.level, g.owed FROM {s}origin_group g WHERE g.ring = :ring ORDER BY g.path

-- name: save_group
-- Write groups; add to the stored deficit, which others may have charged since. Requires the ring lock.
INSERT INTO {s}origin_group (ring, path, deficit, level, owed) VALUES (:ring, :path, :deficit, :level, :owed)
ON CONFLICT (ring, path) DO UPDATE SET
    deficit = deficit + :delta,
    level = min(level, excluded.level),
    owed = excluded.owed

-- name: save_group (postgres)
INSERT INTO {s}origin_group AS g (ring, path, deficit, level, owed)
SELECT :ring, w.path, w.deficit, w.level, w.owed
FROM {each path text[], deficit bigint[], level bigint[], owed text[]}
ON CONFLICT (ring, path) DO UPDATE SET
    deficit = g.deficit + (
        SELECT d.delta FROM unnest(:path::text[], :delta::bigint[]) AS d(path, delta) WHERE d.path = excluded.path
    ),
    level = least(g.level, excluded.level),
    owed = excluded.owed

-- name: forget_branches
-- Delete the groups of a ring: paths were switched on or off. Requires the ring lock.
DELETE FROM {s}origin_group WHERE ring = :ring

-- name: measure
-- Return what was measured of processors' work, of one processor and for one origin if given.
SELECT m.processor, m.origin, m.data FROM {s}measure m
WHERE m.ring = :ring AND (CAST(:processor AS text) IS NULL OR m.processor = :processor)
  AND (CAST(:origin AS text) IS NULL OR m.origin = :origin)

-- name: save_measure
-- Write what was measured of a processor's work. Requires the ring lock.
INSERT INTO {s}measure (ring, processor, origin, data) VALUES (:ring, :processor, :origin, {json data})
ON CONFLICT (ring, processor, origin) DO UPDATE SET data = excluded.data
