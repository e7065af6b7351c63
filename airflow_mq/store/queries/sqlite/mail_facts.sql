-- What is known of single mails: messages and bytes. Takes no lock.
SELECT m.id, m.items, m.size FROM {s}mail m WHERE m.ring = :ring AND m.id = :id
