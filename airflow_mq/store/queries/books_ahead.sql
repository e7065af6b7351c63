-- Books that have mail in pages which was overtaken there: it is at or above their floor. Takes no lock.
SELECT b.ahead FROM {s}book b WHERE b.ring = :ring AND length(b.ahead) > 0
