-- Write books as they stand. Under the ring's lock.
INSERT INTO {s}book (ring, origin, begin_page, end_page, pages, messages, size, ticket, deficit, floor, ahead, wake_at)
VALUES (:ring, :origin, :begin_page, :end_page, :pages, :messages, :size, :ticket, :deficit, :floor, :ahead, :wake_at)
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
