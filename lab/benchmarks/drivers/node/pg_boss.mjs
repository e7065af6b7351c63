// pg-boss: `insert` of many in; `fetch` of a batch, then `deleteJob` of the batch, out.
// Completing would keep the rows for days; deleting what was fetched leaves out that update.
import { PgBoss } from "pg-boss";
import { chunks, collector, dsn, messages, serve, singles, steady, timed, versionOf } from "./common.mjs";

let boss;
const ignore = () => {};

await serve({
  async open() {
    boss = new PgBoss({ connectionString: dsn, max: 32, supervise: false, schedule: false });
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
  steady: ({ count, rate, clients }) => steady(count, rate, clients, (data) => boss.send("bench", data)),
  // Half a second is the shortest poll that it accepts.
  async work({ count }) {
    const { hear, all } = collector(count);
    const options = { pollingIntervalSeconds: 0.5, batchSize: 1000 };
    await boss.work("bench", options, async (jobs) => jobs.forEach((job) => hear(job.data)));
    const answer = await all;
    await boss.offWork("bench");
    return answer;
  },
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
