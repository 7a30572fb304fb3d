import assert from "node:assert/strict";
import { PassThrough, Readable } from "node:stream";

import k8s from "../client.mjs";
import { allOf, podOfAMachine } from "../kinds.mjs";

// What a command said, and how it ended.
async function ran({ config, namespace }, pod, command, stdin = null) {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const { promise, resolve } = Promise.withResolvers();
  const exec = new k8s.Exec(config);
  await exec.exec(namespace, pod, "compute", command, stdout, stderr, stdin, false, resolve);
  const [said, complained, status] = await Promise.all([allOf(stdout), allOf(stderr), promise]);
  return { said, complained, status };
}

export async function commands(context) {
  const pod = await podOfAMachine(context);
  const echoed = await ran(context, pod, ["uname", "-a"]);
  assert.deepEqual([echoed.said, echoed.complained], ["uname -a\n", ""]);
  assert.equal(echoed.status.status, "Success");
  const typed = await ran(context, pod, ["cat"], Readable.from(["typed words"]));
  assert.equal(typed.said, "cat\ntyped words");
  const { status } = await ran(context, pod, ["false"]);
  assert.deepEqual([status.status, status.reason], ["Failure", "NonZeroExitCode"]);
  assert.deepEqual(status.details.causes, [{ reason: "ExitCode", message: "1" }]);
}
