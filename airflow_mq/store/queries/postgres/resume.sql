-- Resume an origin.
DELETE FROM {s}pause WHERE ring = %(ring)s AND origin = %(origin)s
