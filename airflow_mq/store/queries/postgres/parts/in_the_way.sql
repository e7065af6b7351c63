-- What stands in the way of servicing a book `o`: a pause, what is in flight; and what is set for its origin.
-- (Not EXISTS: that may be answered by reading everything that is in flight into memory.)
       coalesce((
           SELECT true FROM {s}pause p
           WHERE p.ring = %(ring)s AND p.origin = ltrim(o.origin, E'\x01') AND (p.until IS NULL OR p.until > %(now)s)
       ), false) AS paused,
       coalesce((
           SELECT true FROM {s}claim c
           WHERE c.ring = %(ring)s AND NOT c.by_hand
             AND c.origin IN (ltrim(o.origin, E'\x01'), E'\x01' || ltrim(o.origin, E'\x01'))
           LIMIT 1
       ), false) AS in_flight,
       (SELECT t.settings FROM {s}standing t WHERE t.ring = %(ring)s AND t.origin = ltrim(o.origin, E'\x01')) AS standing
