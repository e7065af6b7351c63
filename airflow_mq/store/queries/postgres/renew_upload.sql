-- An upload goes on, unless it was given up. Takes no lock that anybody else waits for.
UPDATE {s}upload SET until = %(until)s WHERE id = %(id)s AND until > %(now)s
