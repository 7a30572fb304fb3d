import assert from "node:assert/strict";

import k8s from "../client.mjs";

const made = (name) => ({ metadata: { name } });
const path = (namespace) => `/api/v1/namespaces/${namespace}/secrets`;

// The first changes that a watch tells, as many as asked for.
async function events({ config, namespace }, query, count) {
  const changes = [];
  const { promise, resolve, reject } = Promise.withResolvers();
  const seen = (type, { metadata }) => {
    changes.push([type, metadata.name, metadata.resourceVersion]);
    if (changes.length === count) resolve();
  };
  const request = await new k8s.Watch(config).watch(path(namespace), query, seen, reject);
  await promise;
  request.abort();
  return changes;
}

export async function aWatchFollowsAListAndResumes(context) {
  const { core, namespace } = context;
  await core.createNamespacedSecret({ namespace, body: made("before") });
  const { resourceVersion } = (await core.listNamespacedSecret({ namespace })).metadata;
  await core.createNamespacedSecret({ namespace, body: made("a") });
  const [[type, name, last]] = await events(context, { resourceVersion }, 1);
  assert.deepEqual([type, name], ["ADDED", "a"]);
  await core.deleteNamespacedSecret({ name: "a", namespace });
  await core.createNamespacedSecret({ namespace, body: made("b") });
  const rest = await events(context, { resourceVersion: last }, 2);
  assert.deepEqual(rest.map((each) => each.slice(0, 2)), [["DELETED", "a"], ["ADDED", "b"]]);
}

export async function aWatchEndsInTime({ config, namespace }) {
  const { promise, resolve } = Promise.withResolvers();
  const query = { timeoutSeconds: 1, allowWatchBookmarks: true };
  await new k8s.Watch(config).watch(path(namespace), query, () => {}, resolve);
  assert.equal(await promise, null);
}

// An informer of secrets, for as long as the test runs.
function informed({ config, namespace, signal }, list) {
  const informer = k8s.makeInformer(config, path(namespace), list);
  signal.addEventListener("abort", () => informer.stop());
  return informer;
}

// The next name of which an informer tells so.
function next(informer, verb) {
  return new Promise((resolve) => {
    const seen = ({ metadata }) => {
      informer.off(verb, seen);
      resolve(metadata.name);
    };
    informer.on(verb, seen);
  });
}

export async function anInformerKnowsWhatThereIs(context) {
  const { core, namespace } = context;
  await core.createNamespacedSecret({ namespace, body: made("before") });
  const informer = informed(context, () => core.listNamespacedSecret({ namespace }));
  let change = next(informer, "add");
  await informer.start();
  assert.equal(await change, "before");
  change = next(informer, "add");
  await core.createNamespacedSecret({ namespace, body: made("after") });
  assert.equal(await change, "after");
  change = next(informer, "update");
  await core.patchNamespacedSecret({
    name: "after", namespace, body: [{ op: "add", path: "/data", value: { a: "MQ==" } }],
  });
  assert.equal(await change, "after");
  assert.deepEqual(informer.get("after", namespace).data, { a: "MQ==" });
  change = next(informer, "delete");
  await core.deleteNamespacedSecret({ name: "before", namespace });
  assert.equal(await change, "before");
  assert.deepEqual(informer.list(namespace).map(({ metadata }) => metadata.name), ["after"]);
}

export async function anInformerThatCameTooLateBeginsAnew(context) {
  const { core, namespace } = context;
  const old = await core.listNamespacedSecret({ namespace });
  await core.createNamespacedSecret({ namespace, body: made("large") });
  for (let number = 0; number < 55; number++) {
    const value = { a: Buffer.alloc(720_000, number).toString("base64") };
    const body = [{ op: "add", path: "/data", value }];
    await core.patchNamespacedSecret({ name: "large", namespace, body });
  }
  let lists = 0;
  const list = () => (lists++ ? core.listNamespacedSecret({ namespace }) : old);
  const informer = informed(context, list);
  const change = next(informer, "add");
  await informer.start();
  assert.deepEqual(informer.list(), []);
  assert.equal(await change, "large");
  assert.equal(lists, 2);
}
