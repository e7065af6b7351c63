#!/bin/sh
# Runs once, when PostgreSQL's data are made: a database and a user each for Airflow and for the queue.
set -eu
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" --set ON_ERROR_STOP=1 \
    --set airflow_password="$AIRFLOW_DB_PASSWORD" --set queue_password="$QUEUE_DB_PASSWORD" <<'SQL'
CREATE USER airflow PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;
CREATE USER queue PASSWORD :'queue_password';
CREATE DATABASE queue OWNER queue;
SQL
