-- Forget what is older than a ring keeps it.
DELETE FROM {s}ledger WHERE ring = %(ring)s AND at <= %(before)s
