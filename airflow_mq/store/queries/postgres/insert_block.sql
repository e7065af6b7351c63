-- Write a block that was just planned. Under the ring's lock.
INSERT INTO {s}block (id, ring, number, key, token, by_hand, seconds, deadline, planned_at, details)
VALUES (%(id)s, %(ring)s, %(number)s, %(key)s, %(token)b, %(by_hand)s, %(seconds)s, %(deadline)s, %(planned_at)s, %(details)s::jsonb)
