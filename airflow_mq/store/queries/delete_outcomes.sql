-- What was reported is settled. Under the ring's lock.
DELETE FROM {s}outcome WHERE block = :block
