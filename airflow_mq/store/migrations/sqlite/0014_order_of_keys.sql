-- A call with new origins asks whether one has delayed messages.

CREATE INDEX delayed_by_origin ON {s}delayed (ring, origin);
