-- Names are looked up in pg_catalog alone, whatever the search path of the session that fires a trigger.
ALTER FUNCTION {s}use_blobs() SET search_path = pg_catalog, pg_temp;
ALTER FUNCTION {s}leave_blobs() SET search_path = pg_catalog, pg_temp;

-- A default is bound to its functions when it is made. The first migrations ran under the search path of their session,
-- in which somebody else's nextval(text) comes before PostgreSQL's own.
ALTER TABLE {s}mail ALTER COLUMN id SET DEFAULT (
    CASE WHEN pg_catalog.pg_current_xact_id() IS NOT NULL THEN pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass) END
);
ALTER TABLE {s}delayed ALTER COLUMN id SET DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass);
ALTER TABLE {s}block ALTER COLUMN id SET DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass);
ALTER TABLE {s}outcome ALTER COLUMN id SET DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass);
ALTER TABLE {s}event ALTER COLUMN id SET DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass);
ALTER TABLE {s}upload ALTER COLUMN id SET DEFAULT pg_catalog.nextval('{s}id_seq'::pg_catalog.regclass);
