-- A message with a key has an inbox row of its own. Messages of its origin behind it begin a new row: before, they joined
-- the row in front of it, and overtook it. All else in the function stays as it was.

DO $$
DECLARE
    before text := pg_get_functiondef('{s}store_messages'::regproc);
    alone constant text := 'parts[given.place] := -given.place;';
    after text := replace(before, alone, alone || E'\n            part := NULL;');
BEGIN
    IF after = before THEN
        RAISE EXCEPTION 'the function store_messages was changed: expected the one of migration 9';
    END IF;
    EXECUTE after;
END
$$;

-- A call with new origins asks whether one has delayed messages.
CREATE INDEX delayed_by_origin ON {s}delayed (ring, origin);
