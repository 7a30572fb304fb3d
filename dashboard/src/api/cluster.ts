/** All that the page follows on the server: a store for each kind, the user's rights, usage. */

import { ApiError, type Client } from "./client";
import { KIND_NAMES, KINDS, pathOf, type KindName } from "./kinds";
import { list, text, type KubeEvent, type KubeObject, type ManagedField } from "./objects";
import { EMPTY, Store, type Snapshot } from "./store";
import { recordUsage, type Usage } from "../model/usage";
import { Rights, type RulesReview } from "../model/rights";
import { changesOf, type Change } from "../model/changes";

export type Snapshots = Readonly<Record<KindName, Snapshot>>;

export interface World extends Snapshots {
  /** The namespace that is shown; empty for all. */
  namespace: string;
  namespaces: readonly string[];
  rights: Rights;
  user: string;
  serverVersion: string;
  usage: Usage;
}

const USAGE_INTERVAL_MS = 15_000;
const EVENTS_KEPT = 3_000;

function nothing(): World {
  const snapshots = Object.fromEntries(KIND_NAMES.map((each) => [each, EMPTY])) as Snapshots;
  return {
    ...snapshots,
    namespace: "",
    namespaces: [],
    rights: Rights.unknown(),
    user: "",
    serverVersion: "",
    usage: { machines: new Map(), nodes: new Map(), available: false },
  };
}

/** Fields of an object that hold its history; `changes` replaces managedFields, which are long. */
export interface Trimmed extends KubeObject {
  changes?: readonly Change[];
}

function trim(object: KubeObject): KubeObject {
  const { managedFields, annotations, ...metadata } = object.metadata;
  const kept = { ...annotations };
  delete kept["kubectl.kubernetes.io/last-applied-configuration"];
  const trimmed: Trimmed = { ...object, metadata: { ...metadata, annotations: kept } };
  if (managedFields) trimmed.changes = changesOf(managedFields as ManagedField[]);
  return trimmed;
}

function trimEvent(object: KubeObject): KubeObject {
  const { managedFields: _, ...metadata } = object.metadata;
  return { ...(object as KubeEvent), metadata };
}

export class Cluster {
  readonly client: Client;
  #world: World = nothing();
  #stores: Record<KindName, Store>;
  #versions: Partial<Record<KindName, string>> = {};
  #listeners = new Set<() => void>();
  #frame = 0;
  #usageTimer = 0;

  constructor(client: Client) {
    this.client = client;
    const changed = () => this.#schedule();
    const stores = KIND_NAMES.map((name) => [name, new Store(changed, name === "events" ? trimEvent : trim)]);
    this.#stores = Object.fromEntries(stores) as Record<KindName, Store>;
  }

  get world(): World {
    return this.#world;
  }

  subscribe(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** The path of a kind's objects on this server. */
  path(name: KindName, namespace = "", object = ""): string {
    const kind = KINDS[name];
    return pathOf(kind, this.#versions[name] ?? kind.versions[0] ?? "v1", namespace, object);
  }

  apiVersion(name: KindName): string {
    const kind = KINDS[name];
    const version = this.#versions[name] ?? kind.versions[0] ?? "v1";
    return kind.group ? `${kind.group}/${version}` : version;
  }

  /** Read what the server has, and follow it. Raises ApiError and Unreachable. */
  async start(namespace: string): Promise<void> {
    const groups = await this.client.json<unknown>("/apis");
    const served = new Map<string, string[]>();
    for (const group of list(groups, "groups"))
      served.set(text(group, "name"), list(group, "versions").map((each) => text(each, "version")));
    served.set("", ["v1"]);
    for (const name of KIND_NAMES) {
      const { group, versions } = KINDS[name];
      this.#versions[name] = versions.find((each) => served.get(group)?.includes(each));
    }
    this.#world = { ...this.#world, usage: { ...this.#world.usage, available: served.has("metrics.k8s.io") } };
    await this.showNamespace(namespace);
    void this.#readFacts();
    void this.#readUsage();
    this.#usageTimer = window.setInterval(() => void this.#readUsage(), USAGE_INTERVAL_MS);
  }

  stop(): void {
    for (const store of Object.values(this.#stores)) store.stop();
    clearInterval(this.#usageTimer);
    cancelAnimationFrame(this.#frame);
    this.#world = nothing();
  }

  /** Follow one namespace, or all of them for an empty name. */
  async showNamespace(namespace: string): Promise<void> {
    this.#set({ namespace });
    for (const name of KIND_NAMES) {
      if (this.#versions[name] === undefined) this.#stores[name].markAbsent();
      else this.#stores[name].start(this.client, this.path(name, KINDS[name].namespaced ? namespace : ""));
    }
    await this.#readRights(namespace || "default");
  }

  async #readRights(namespace: string): Promise<void> {
    try {
      const review = await this.client.json<RulesReview>("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
        method: "POST",
        body: { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } },
      });
      this.#set({ rights: Rights.of(review) });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.#set({ rights: Rights.unknown() });
    }
  }

  /** Read who the user is, the server's version and its namespaces; what is not permitted stays empty. */
  async #readFacts(): Promise<void> {
    const { client } = this;
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
    const [self, version, namespaces] = await Promise.allSettled([
      client.json<unknown>("/apis/authentication.k8s.io/v1/selfsubjectreviews", { method: "POST", body: review }),
      client.json<unknown>("/version"),
      client.json<unknown>("/api/v1/namespaces"),
    ]);
    const names = namespaces.status === "fulfilled" ? list(namespaces.value, "items") : [];
    this.#set({
      user: self.status === "fulfilled" ? text(self.value, "status", "userInfo", "username") : "",
      serverVersion: version.status === "fulfilled" ? text(version.value, "gitVersion") : "",
      namespaces: names.map((each) => text(each, "metadata", "name")).sort(),
    });
  }

  async #readUsage(): Promise<void> {
    if (!this.#world.usage.available || document.hidden) return;
    const { namespace } = this.#world;
    const scope = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
    const root = "/apis/metrics.k8s.io/v1beta1";
    const [pods, nodes] = await Promise.allSettled([
      this.client.json<unknown>(`${root}${scope}/pods`),
      this.client.json<unknown>(`${root}/nodes`),
    ]);
    const items = (each: PromiseSettledResult<unknown>) => (each.status === "fulfilled" ? list(each.value, "items") : []);
    this.#set({ usage: recordUsage(this.#world.usage, items(pods), items(nodes)) });
  }

  #set(part: Partial<World>): void {
    this.#world = { ...this.#world, ...part };
    this.#notify();
  }

  #schedule(): void {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#publish();
    });
  }

  #publish(): void {
    const changed: Partial<Record<KindName, Snapshot>> = {};
    for (const name of KIND_NAMES) {
      const store = this.#stores[name];
      if (store.publish()) changed[name] = name === "events" ? newest(store.snapshot) : store.snapshot;
    }
    if (Object.keys(changed).length > 0) this.#set(changed);
  }

  #notify(): void {
    for (const listener of this.#listeners) listener();
  }
}

/** Keep the newest events only: a busy server has more than anybody reads. */
function newest(snapshot: Snapshot): Snapshot {
  if (snapshot.items.length <= EVENTS_KEPT) return snapshot;
  return { ...snapshot, items: snapshot.items.slice(-EVENTS_KEPT) };
}

export function phaseOf(world: World): "loading" | "live" | "polling" | "down" {
  const phases = KIND_NAMES.map((each) => world[each].phase);
  if (phases.includes("down")) return "down";
  if (phases.includes("loading")) return "loading";
  return phases.includes("polling") ? "polling" : "live";
}

export function errorOf(world: World): string {
  return KIND_NAMES.map((each) => (world[each].phase === "down" ? world[each].error : "")).find(Boolean) ?? "";
}

/** Return the kinds that the user may not list where they look. */
export function forbiddenKinds(world: World): KindName[] {
  return KIND_NAMES.filter((each) => world[each].phase === "forbidden");
}

export function has(world: World, name: KindName): boolean {
  return world[name].phase !== "absent";
}
