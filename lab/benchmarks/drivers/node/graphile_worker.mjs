// graphile-worker with the settings of the "Performance" page of its documentation:
// `addJobs` in; 24 jobs at a time from a local queue of 500, completions batched, out.
import { Logger, makeWorkerUtils, run } from "graphile-worker";
import { chunks, collector, dsn, messages, serve, singles, steady, timed, versionOf } from "./common.mjs";

const logger = new Logger(() => () => {});
const preset = {
  worker: {
    connectionString: dsn,
    concurrentJobs: 24,
    maxPoolSize: 33,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
    logger,
  },
};
let utils;

await serve({
  async open() {
    utils = await makeWorkerUtils({ preset });
  },
  async setup() {
    await utils.migrate();
    return { version: versionOf("graphile-worker") };
  },
  async bulk_in({ count, call = 1000 }) {
    const todo = messages(count).map((payload) => ({ identifier: "bench", payload }));
    return {
      seconds: await timed(async () => {
        for (const chunk of chunks(todo, call)) await utils.addJobs(chunk);
      }),
    };
  },
  single_in: ({ count, clients }) => singles(count, clients, (payload) => utils.addJob("bench", payload)),
  steady: ({ count, rate, clients }) => steady(count, rate, clients, (payload) => utils.addJob("bench", payload)),
  // Without the local queue, which is for throughput: a job is fetched when a notification comes.
  async work({ count }) {
    const { hear, all } = collector(count);
    const { localQueue, completeJobBatchDelay, failJobBatchDelay, ...worker } = preset.worker;
    const runner = await run({ preset: { worker }, taskList: { bench: hear }, noHandleSignals: true });
    const answer = await all;
    await runner.stop();
    return answer;
  },
  async out_all({ count }) {
    let done = 0;
    const seconds = await timed(async () => {
      let finish;
      const finished = new Promise((resolve) => (finish = resolve));
      const bench = () => {
        if (++done === count) finish();
      };
      const runner = await run({ preset, taskList: { bench }, noHandleSignals: true });
      await finished;
      // Stopping waits for the completions, and completing deletes.
      await runner.stop();
    });
    return { seconds, count: done };
  },
});
