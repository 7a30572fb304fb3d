/** All that the page follows on the server: a store for each kind, the user's rights, usage. */

import { AskedRights } from "./asked-rights";
import type { Client } from "./client";
import { KIND_NAMES, KINDS, pathOf, type KindName } from "./kinds";
import { list, text, type KubeEvent, type KubeObject, type ManagedField } from "./objects";
import { EMPTY, Store, type Snapshot } from "./store";
import { withoutOverrides } from "../model/texts";
import { recordUsage, type Usage } from "../model/usage";
import { NO_RIGHTS_KNOWN, type AllRights } from "../model/rights";
import { changesOf, type Change } from "../model/changes";

export type Snapshots = Readonly<Record<KindName, Snapshot>>;

export interface World extends Snapshots {
  /** The namespace that is shown; empty for all. */
  namespace: string;
  namespaces: readonly string[];
  rights: AllRights;
  user: string;
  serverVersion: string;
  usage: Usage;
}

const USAGE_INTERVAL_MS = 15_000;
/** The kinds that the fleet consists of, in the order in which they are read: the longest list first. */
const FLEET: readonly KindName[] = ["vmis", "sets", "pools", "vms", "warmPools"];
const ORDER = [...FLEET, ...KIND_NAMES.filter((each) => !FLEET.includes(each))];
const EVENTS_KEPT = 3_000;
/** What no view waits for: lists of machines come first. */
const LATER = { priority: "low" } as const;

function preferredVersions(): Record<KindName, string> {
  return Object.fromEntries(KIND_NAMES.map((each) => [each, KINDS[each].versions[0] ?? ""])) as Record<KindName, string>;
}

function nothing(): World {
  const snapshots = Object.fromEntries(KIND_NAMES.map((each) => [each, EMPTY])) as Snapshots;
  return {
    ...snapshots,
    namespace: "",
    namespaces: [],
    rights: NO_RIGHTS_KNOWN,
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
  const event = object as KubeEvent;
  const trimmed: KubeEvent = {
    ...event,
    metadata,
    reason: withoutOverrides(event.reason),
    message: withoutOverrides(event.message ?? event.note),
    reportingComponent: withoutOverrides(event.reportingComponent),
  };
  return trimmed;
}

export class Cluster {
  readonly client: Client;
  #world: World = nothing();
  #stores: Record<KindName, Store>;
  /** The version in which each kind is read; empty for one that the server does not have. */
  #versions = preferredVersions();
  #isDiscovered = false;
  readonly #rights: AskedRights;
  #listeners = new Set<() => void>();
  #frame = 0;
  #usageTimer = 0;

  constructor(client: Client) {
    this.client = client;
    this.#rights = new AskedRights(client, () => this.#set({ rights: { of: (namespace) => this.#rights.of(namespace) } }));
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
    return pathOf(kind, this.#versions[name] || kind.versions[0] || "v1", namespace, object);
  }

  apiVersion(name: KindName): string {
    const kind = KINDS[name];
    const version = this.#versions[name] || kind.versions[0] || "v1";
    return kind.group ? `${kind.group}/${version}` : version;
  }

  /** Follow what the server has, for a user of that name.
   *
   * Nothing waits for another answer: kinds are read in their preferred versions until discovery
   * names others.
   */
  start(user: string): void {
    this.#set({ user, rights: this.#rights });
    this.showNamespace("");
    this.#turn();
    void this.#readFacts();
    this.#usageTimer = window.setInterval(() => this.#turn(), USAGE_INTERVAL_MS);
  }

  /** Read usage, and before it what the server has, if that is not known yet. */
  #turn(): void {
    if (this.#isDiscovered) void this.#readUsage();
    else void this.#discover().then(() => this.#readUsage());
  }

  /** Find out which kinds the server has, and in which versions. Without an answer the next turn tries again. */
  async #discover(): Promise<void> {
    let groups: unknown;
    try {
      groups = await this.client.json<unknown>("/apis");
    } catch {
      return;
    }
    const served = new Map<string, string[]>([["", ["v1"]]]);
    for (const group of list(groups, "groups"))
      served.set(text(group, "name"), list(group, "versions").map((each) => text(each, "version")));
    this.#isDiscovered = true;
    for (const name of KIND_NAMES) {
      const { group, versions } = KINDS[name];
      const version = versions.find((each) => served.get(group)?.includes(each)) ?? "";
      if (version === this.#versions[name]) continue;
      this.#versions[name] = version;
      this.#follow(name);
    }
    this.#set({ usage: { ...this.#world.usage, available: served.has("metrics.k8s.io") } });
  }

  stop(): void {
    for (const store of Object.values(this.#stores)) store.stop();
    clearInterval(this.#usageTimer);
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.#rights.forget();
    this.#versions = preferredVersions();
    this.#isDiscovered = false;
    this.#world = nothing();
  }

  /** Follow one namespace, or all of them for an empty name. */
  showNamespace(namespace: string): void {
    this.#set({ namespace });
    for (const name of ORDER) this.#follow(name);
    if (namespace) this.#rights.ask(namespace);
  }

  /** Ask again what the user may do in a namespace, where the server has refused what was thought permitted. */
  askRights(namespace: string): void {
    this.#rights.ask(namespace);
  }

  #follow(name: KindName): void {
    if (this.#versions[name] === "") return this.#stores[name].markAbsent();
    const path = this.path(name, KINDS[name].namespaced ? this.#world.namespace : "");
    this.#stores[name].start(this.client, path, FLEET.includes(name) ? "high" : "low");
  }

  /** Read the server's version and its namespaces; what is not permitted stays empty. */
  async #readFacts(): Promise<void> {
    const [version, namespaces] = await Promise.allSettled([
      this.client.json<unknown>("/version", LATER),
      this.client.json<unknown>("/api/v1/namespaces", LATER),
    ]);
    const names = namespaces.status === "fulfilled" ? list(namespaces.value, "items") : [];
    this.#set({
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
      this.client.json<unknown>(`${root}${scope}/pods`, LATER),
      this.client.json<unknown>(`${root}/nodes`, LATER),
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
  if (phases.includes("loading") || phases.includes("listed")) return "loading";
  return phases.includes("polling") ? "polling" : "live";
}

export function errorOf(world: World): string {
  return KIND_NAMES.map((each) => (world[each].phase === "down" ? world[each].error : "")).find(Boolean) ?? "";
}

/** Return the kinds that the user may not list where they look. */
export function forbiddenKinds(world: World): KindName[] {
  return KIND_NAMES.filter((each) => world[each].phase === "forbidden");
}

/** Report whether a part of the fleet is not known yet. */
export function isFleetLoading(world: World): boolean {
  return FLEET.some((each) => world[each].phase === "loading");
}

export function has(world: World, name: KindName): boolean {
  return world[name].phase !== "absent";
}

/** Return the kinds that the server does not have. */
export function absentKinds(world: World): KindName[] {
  return KIND_NAMES.filter((each) => !has(world, each));
}
