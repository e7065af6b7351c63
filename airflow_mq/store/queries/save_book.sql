-- Write books as they stand. Under the ring's lock.
INSERT INTO {s}book {
    rows ring, origin text[], begin_page bigint[], end_page bigint[], pages bigint[], messages bigint[],
    size bigint[], ticket bigint[], deficit bigint[], floor bigint[], ahead bytea[], wake_at bigint[]
}
ON CONFLICT (ring, origin) DO UPDATE SET
    begin_page = excluded.begin_page,
    end_page = excluded.end_page,
    pages = excluded.pages,
    messages = excluded.messages,
    size = excluded.size,
    ticket = excluded.ticket,
    deficit = excluded.deficit,
    floor = excluded.floor,
    ahead = excluded.ahead,
    wake_at = excluded.wake_at
