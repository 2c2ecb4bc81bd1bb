// Jobs for graphile-worker: its own schema, its own worker. install, push JSON, work.
import { Logger, makeWorkerUtils, run } from "graphile-worker";

const connectionString = process.env.DSN;
const logger = new Logger(() => () => {});
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const taskList = {
  ok: async () => {},
  fail: async () => {
    throw new Error("broken");
  },
  retry: async () => {
    throw new Error("later");
  },
  slow: async () => sleep(600_000),
};

const [command, argument] = process.argv.slice(2);
if (command === "work") {
  const runner = await run({ connectionString, concurrency: 4, pollInterval: 100, taskList, logger });
  await runner.promise;
} else {
  const utils = await makeWorkerUtils({ connectionString, logger });
  if (command === "install") await utils.migrate();
  if (command === "push") {
    for (const [name, count] of Object.entries(JSON.parse(argument))) {
      for (let i = 0; i < count; i++) {
        const spec = {};
        if (name === "delayed") spec.runAt = new Date(Date.now() + 3600_000);
        if (name === "fail") spec.maxAttempts = 1;
        await utils.addJob(name === "delayed" ? "ok" : name, {}, spec);
      }
    }
  }
  await utils.release();
}
