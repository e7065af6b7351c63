-- Mail that joined its queue.
DELETE FROM {s}delayed WHERE ring = :ring AND due <= :now
