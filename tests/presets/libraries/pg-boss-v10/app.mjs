// Jobs for pg-boss: its own schema, its own worker. install, push JSON, work.
import * as module from "pg-boss";

const PgBoss = module.PgBoss ?? module.default;
const boss = new PgBoss(process.env.DSN);
boss.on("error", (error) => console.error(error));
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const handlers = {
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
await boss.start();
if (command === "install") {
  for (const name of Object.keys(handlers)) await boss.createQueue(name);
}
if (command === "push") {
  for (const [name, count] of Object.entries(JSON.parse(argument))) {
    for (let i = 0; i < count; i++) {
      const options = { retryLimit: 0 };
      if (name === "delayed") options.startAfter = 3600;
      if (name === "retry") Object.assign(options, { retryLimit: 5, retryDelay: 3600 });
      await boss.send(name === "delayed" ? "ok" : name, {}, options);
    }
  }
}
if (command === "work") {
  for (const [name, handler] of Object.entries(handlers)) {
    await boss.work(name, { pollingIntervalSeconds: 0.5 }, handler);
  }
} else {
  await boss.stop({ graceful: false });
  process.exit(0);
}
