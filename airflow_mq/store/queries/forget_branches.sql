-- Forget the groups of a ring: paths were switched on or off. Under the ring's lock.
DELETE FROM {s}branch WHERE ring = :ring
