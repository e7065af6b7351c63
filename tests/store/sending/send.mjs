// Node with pg: the variables PGHOST, PGPORT, PGUSER, PGPASSWORD and PGDATABASE name the database.
import pg from "pg";

const client = new pg.Client();
await client.connect();

async function send(payload, key) {
  const text = "SELECT airflow_mq.send('default', 'acme', $1, key => $2) AS count";
  return (await client.query(text, [Buffer.from(payload), key])).rows[0].count;
}

// One message, with a key: sent again, it is stored once.
console.log(await send("order 17", "node-17"));

// Many messages, in one transaction with statements of your own.
await client.query("BEGIN");
const many = await client.query("SELECT airflow_mq.send_many('default', $1, $2) AS count", [
  ["acme", "acme"],
  [Buffer.from("order 18"), Buffer.from("order 19")],
]);
await client.query("COMMIT");
console.log(many.rows[0].count);

try {
  await send("order 20", "node-17");
} catch (error) {
  if (error.code !== "MQ105") throw error;
  console.log(error.code); // Another message used the key: nothing was stored.
}
await client.end();
