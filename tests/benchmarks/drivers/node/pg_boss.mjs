// pg-boss: `insert` of many in; `fetch` of a batch, then `deleteJob` of the batch, out.
// Completing would keep the rows for days; deleting what was fetched leaves out that update.
import { PgBoss } from "pg-boss";
import { chunks, dsn, messages, serve, singles, timed, versionOf } from "./common.mjs";

let boss;
const ignore = () => {};

await serve({
  async open() {
    boss = new PgBoss({ connectionString: dsn, max: 10, supervise: false, schedule: false });
    boss.on("error", ignore);
    await boss.start();
  },
  async setup() {
    await boss.createQueue("bench");
    return { version: versionOf("pg-boss") };
  },
  async bulk_in({ count, call = 1000 }) {
    const todo = messages(count).map((data) => ({ data }));
    return {
      seconds: await timed(async () => {
        for (const chunk of chunks(todo, call)) await boss.insert("bench", chunk);
      }),
    };
  },
  single_in: ({ count, clients }) => singles(count, clients, (data) => boss.send("bench", data)),
  async out_all({ batch = 1000, loops = 4 }) {
    let done = 0;
    const loop = async () => {
      for (;;) {
        const jobs = await boss.fetch("bench", { batchSize: batch });
        if (jobs.length === 0) return;
        done += jobs.length;
        await boss.deleteJob("bench", jobs.map((job) => job.id));
      }
    };
    const seconds = await timed(() => Promise.all(Array.from({ length: loops }, loop)));
    return { seconds, count: done };
  },
});
