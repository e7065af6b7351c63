-- New ids.
UPDATE {s}counter SET last = last + :count RETURNING last
