-- What stands in the way of servicing a book `o`: a pause, what is in flight; and what is set for its origin.
-- (CASE looks no further than it must: what a ring does not use costs nothing more.)
       CASE WHEN EXISTS (SELECT 1 FROM {s}pause WHERE ring = :ring) THEN EXISTS (
           SELECT 1 FROM {s}pause p
           WHERE p.ring = :ring AND p.origin = ltrim(o.origin, char(1)) AND (p.until IS NULL OR p.until > :now)
       ) ELSE 0 END AS paused,
       CASE
           WHEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = o.origin AND NOT c.by_hand) THEN 1
           WHEN o.origin < char(2)
           THEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = substr(o.origin, 2) AND NOT c.by_hand)
           WHEN EXISTS (SELECT 1 FROM {s}claim WHERE ring = :ring AND origin < char(2))
           THEN EXISTS (SELECT 1 FROM {s}claim c WHERE c.ring = :ring AND c.origin = char(1) || o.origin AND NOT c.by_hand)
           ELSE 0
       END AS in_flight,
       CASE WHEN EXISTS (SELECT 1 FROM {s}standing WHERE ring = :ring) THEN (
           SELECT t.settings FROM {s}standing t WHERE t.ring = :ring AND t.origin = ltrim(o.origin, char(1))
       ) END AS standing
