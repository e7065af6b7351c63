-- Say that high messages are sent to a ring.
UPDATE {s}ring SET config = json_set(config, '$.high', json('true'))
WHERE id = :ring AND NOT coalesce(json_extract(config, '$.high'), 0)
