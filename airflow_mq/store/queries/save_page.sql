-- Write pages as they stand. Under the ring's lock.
INSERT INTO {s}page {
    rows ring, origin text[], page bigint[], items int[], used int[], first_index int[], remaining int[],
    remaining_size bigint[], kept int[], first_mail bigint[], last_mail bigint[], slices bytea[], lengths bytea[],
    marks bytea[], notes bytea[]
}
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
