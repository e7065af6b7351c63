-- Let the ring from a ticket on come first: the head is forced. Under the ring's lock.
UPDATE {s}book SET ticket = ticket - %(shift)s WHERE ring = %(ring)s AND ticket BETWEEN %(ticket)s AND %(top)s
