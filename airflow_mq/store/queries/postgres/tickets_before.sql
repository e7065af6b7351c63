-- Ready books of a priority before a ticket, in order. Takes no lock.
SELECT b.origin FROM {s}book b WHERE b.ring = %(ring)s AND b.ticket < %(ticket)s AND b.ticket >= %(low)s ORDER BY b.ticket, b.origin
