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

/**
 * The text and the command of a remedy that the server suggests: the command is in backticks, or ends the text. Names
 * that a shell could misread are in quotes, so what follows a quote is no command.
 */
export function remedy(text: string, place: Partial<Place>): { text: string; command: string | null } {
  const [whole, before, marked, last] = text.match(/^([^']*?)(?:`(airflow-mq [^`]+)`|(airflow(?:-mq| dags) .+)$)/) ?? [];
  if (whole === undefined) return { text, command: null };
  const command = (marked ?? last)!;
  const { conn, ring } = place;
  const added = command.startsWith("airflow-mq") && !command.endsWith("--help") ? [conn && `--conn-id ${quoted(conn)}`, ring && `--ring ${quoted(ring)}`] : [];
  return { text: marked ? text.replaceAll("`", "") : before!, command: [command, ...added].filter(Boolean).join(" ") };
}
