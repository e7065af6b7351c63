-- Which of these origins have something stored, or on its way. Takes no lock.
SELECT o.origin FROM unnest(%(origin)b::text[]) AS o(origin)
WHERE EXISTS (
          SELECT 1 FROM {s}book b WHERE b.ring = %(ring)s AND b.origin = o.origin AND (b.pages > 0 OR b.ticket IS NOT NULL)
      )
   OR EXISTS (SELECT 1 FROM {s}mail m WHERE m.ring = %(ring)s AND m.origin = o.origin)
   OR EXISTS (SELECT 1 FROM {s}delayed d WHERE d.ring = %(ring)s AND d.origin = o.origin)
