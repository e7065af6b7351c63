#!/bin/sh
# A first look: every command is shown before it runs. The store goes when the demo ends.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export AIRFLOW_MQ_STORE="sqlite:///$folder/queue.db"

run() {
    printf '\n$ airflow-mq'
    for word in "$@"; do case $word in *[!A-Za-z0-9_:/=.-]*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac; done
    printf '\n'
    airflow-mq "$@"
}

run store upgrade
run ring change --set 'service_weight=[40,100000]' --set 'rounds_per_block=8'
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do echo "order $number of many"; done > "$folder/orders"
run enqueue loud --file "$folder/orders" --lines
run enqueue quiet 'the only order'
run enqueue heavy --weight 100/100 'more than any block can pay'
run queue list
run service --processor builtins:print
run message events --limit 6
# Ends with 1: a message was set aside and needs a person.
run status || test $? -eq 1
run set-aside list
run set-aside execute heavy:0:0 --processor builtins:print
run report ledger
run check
