-- Write books as they stand. Under the ring's lock.
INSERT INTO {s}book (ring, origin, begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at)
SELECT %(ring)s, w.origin, w.begin_page, w.end_page, w.pages, w.messages, w.size, w.ticket, w.deficit, w.floor, w.ahead, w.wake_at
FROM unnest(%(origin)b::text[], %(begin_page)b::bigint[], %(end_page)b::bigint[], %(pages)b::bigint[], %(messages)b::bigint[], %(size)b::bigint[], %(ticket)b::bigint[], %(deficit)b::bigint[], %(floor)b::bigint[], %(ahead)b::bytea[], %(wake_at)b::bigint[]) AS w(origin, begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at)
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
