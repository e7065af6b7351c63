-- Write pages as they stand. Under the ring's lock.
INSERT INTO {s}page (ring, origin, page, items, used, first_index, remaining, remaining_size, kept, first_mail, last_mail, slices, lengths, marks, notes)
SELECT %(ring)s, w.origin, w.page, w.items, w.used, w.first_index, w.remaining, w.remaining_size, w.kept, w.first_mail, w.last_mail, w.slices, w.lengths, w.marks, w.notes
FROM unnest(%(origin)b::text[], %(page)b::bigint[], %(items)b::int[], %(used)b::int[], %(first_index)b::int[], %(remaining)b::int[], %(remaining_size)b::bigint[], %(kept)b::int[], %(first_mail)b::bigint[], %(last_mail)b::bigint[], %(slices)b::bytea[], %(lengths)b::bytea[], %(marks)b::bytea[], %(notes)b::bytea[]) AS w(origin, page, items, used, first_index, remaining, remaining_size, kept, first_mail, last_mail, slices, lengths, marks, notes)
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
