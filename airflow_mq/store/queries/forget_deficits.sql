-- Let every queue begin anew: paths were switched on or off. Under the ring's lock.
UPDATE {s}book SET deficit = 0 WHERE ring = :ring AND deficit <> 0
