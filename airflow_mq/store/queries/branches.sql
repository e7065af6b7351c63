-- The groups of a ring with paths. Takes no lock.
SELECT g.path, g.deficit, g.level, g.owed FROM {s}branch g WHERE g.ring = :ring ORDER BY g.path
