-- What was measured of a processor's work. Takes no lock.
SELECT m.processor, m.origin, m.data FROM {s}measure m WHERE m.ring = :ring AND (CAST(:processor AS text) IS NULL OR m.processor = :processor)
