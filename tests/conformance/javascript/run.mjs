// Runs tests of deeds/ one after another, as lines of JSON ask: {deed, test, namespace, manifests}.
// Each is answered by a line: what went wrong, or null.
import { once } from "node:events";
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { setTimeout } from "node:timers/promises";

import k8s from "./client.mjs";

const PATIENCE = 120_000; // milliseconds that a test may take

const config = new k8s.KubeConfig();
config.loadFromFile(process.argv[2]);
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);

for await (const line of createInterface({ input: process.stdin })) {
  const { deed, test, namespace, manifests } = JSON.parse(line);
  const run = (await import(`./deeds/${deed}.mjs`))[test];
  const error = await failure(run, { config, core, custom, namespace, manifests });
  writeSync(1, `${JSON.stringify(error)}\n`);
}
process.exit(); // whatever the client has still open

// What went wrong, also where nobody waits for it.  The signal tells a test that it is over.
async function failure(run, context) {
  const over = new AbortController();
  const { signal } = over;
  const late = setTimeout(PATIENCE, "it did not end in time", { signal });
  const stray = once(process, "uncaughtException", { signal }).then(([error]) => error.stack);
  for (const each of [late, stray]) each.catch(() => {}); // it is called off
  try {
    return (await Promise.race([run({ ...context, signal }), late, stray])) ?? null;
  } catch (error) {
    return error.stack;
  } finally {
    over.abort();
  }
}
