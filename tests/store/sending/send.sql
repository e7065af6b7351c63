-- psql: the variables PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE name the database.
\set QUIET on
\pset tuples_only on
\pset format unaligned

-- One message, with a key: sent again, it is stored once.
SELECT airflow_mq.send('default', 'acme', convert_to('order 17', 'UTF8'), key => 'psql-17');

-- Many messages and a row of your own: all are committed, or none.
BEGIN;
CREATE TEMP TABLE orders AS SELECT n, 'order ' || n AS text FROM generate_series(18, 19) n;
SELECT airflow_mq.send_many('default', array_agg('acme'::text), array_agg(convert_to(text, 'UTF8') ORDER BY n))
FROM orders;
COMMIT;

-- Another message with a key that was used: MQ105.
\set VERBOSITY sqlstate
SELECT airflow_mq.send('default', 'acme', convert_to('order 20', 'UTF8'), key => 'psql-17');
\if :ERROR
    \echo :SQLSTATE
\endif
