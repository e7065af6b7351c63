-- Write pages as they stand. Under the ring's lock.
INSERT INTO {s}page (ring, origin, page, items, used, first_index, remaining, remaining_size, kept, first_mail, last_mail, slices, lengths, marks, notes)
VALUES (:ring, :origin, :page, :items, :used, :first_index, :remaining, :remaining_size, :kept, :first_mail, :last_mail, :slices, :lengths, :marks, :notes)
ON CONFLICT (ring, origin, page) DO UPDATE SET
    items = excluded.items,
    used = excluded.used,
    first_index = excluded.first_index,
    remaining = excluded.remaining,
    remaining_size = excluded.remaining_size,
    kept = excluded.kept,
    first_mail = excluded.first_mail,
    last_mail = excluded.last_mail,
    slices = excluded.slices,
    lengths = excluded.lengths,
    marks = excluded.marks,
    notes = excluded.notes
