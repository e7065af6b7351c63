-- A block lives for longer, if it still lives.
UPDATE {s}block SET deadline = %(deadline)s WHERE ring = %(ring)s AND token = %(token)b AND state = 0 AND deadline > %(now)s
