#!/bin/sh
# Puts the administrator's password where Airflow's simple auth manager looks for it, then runs the command.
set -eu
if [ -n "${AIRFLOW_ADMIN_PASSWORD:-}" ]; then
    umask 077
    file=${AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE:-$AIRFLOW_HOME/passwords.json}
    python -c 'import json, os, sys; json.dump({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}, sys.stdout)' >"$file"
    unset AIRFLOW_ADMIN_PASSWORD
fi
exec "$@"
