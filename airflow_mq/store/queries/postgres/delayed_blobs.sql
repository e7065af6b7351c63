-- Mail that joins its queue later and refers to blobs. Takes no lock.
SELECT d.id, d.origin, d.attributes FROM {s}delayed d
WHERE d.ring = %(ring)s AND d.attributes <> '' AND position('"blobs":{'::bytea IN d.attributes) > 0
