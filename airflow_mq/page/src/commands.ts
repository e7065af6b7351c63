/** Every command that the page itself shows, so that a renamed command changes here only. */

type Place = { conn: string; ring: string };

/** Quote an argument for a shell: senders choose the names of origins. */
const quoted = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);
const at = ({ conn, ring }: Place) => `--conn-id ${quoted(conn)} --ring ${quoted(ring)}`;

export const COMMANDS = {
  connect: `AIRFLOW_CONN_AIRFLOW_MQ_DEFAULT='{"conn_type": "airflow_mq",
  "extra": {"driver": "sqlite", "path": "/data/queue.db"}}'
airflow-mq store upgrade --store sqlite:////data/queue.db`,
  createRing: (conn: string) => `airflow-mq ring create default --conn-id ${quoted(conn)}`,
  enqueue: (place: Place) => `airflow-mq enqueue acme/orders '{"order": 1}' ${at(place)}`,
  status: (place: Place) => `airflow-mq status ${at(place)}`,
  paused: (place: Place) => `airflow-mq queue paused ${at(place)}`,
  payload: (id: string, place: Place) => `airflow-mq payload get ${id} --output payload ${at(place)}`,
  check: (place: Place) => `airflow-mq check ${at(place)}`,
};
