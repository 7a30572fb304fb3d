/** What the page knows of one kind: immutable snapshots, published at most once a frame. */

import type { Client } from "./client";
import { keyOf, type KubeObject } from "./objects";
import { Watch, type Phase, type Sink } from "./watch";

export interface Snapshot {
  readonly phase: Phase;
  readonly error: string;
  readonly byKey: ReadonlyMap<string, KubeObject>;
  readonly items: readonly KubeObject[];
}

export const EMPTY: Snapshot = { phase: "loading", error: "", byKey: new Map(), items: [] };

export class Store implements Sink {
  #objects = new Map<string, KubeObject>();
  #snapshot: Snapshot = EMPTY;
  #phase: Phase = "loading";
  #error = "";
  #watch: Watch | undefined;
  readonly #changed: () => void;
  readonly #trim: (object: KubeObject) => KubeObject;

  /** `trim` drops what the page does not show; `changed` is called at each change. */
  constructor(changed: () => void, trim: (object: KubeObject) => KubeObject) {
    this.#changed = changed;
    this.#trim = trim;
  }

  get snapshot(): Snapshot {
    return this.#snapshot;
  }

  start(client: Client, path: string, priority: RequestPriority): void {
    this.stop();
    this.#objects = new Map();
    this.#watch = new Watch(client, path, this, priority);
    void this.#watch.run();
  }

  stop(): void {
    this.#watch?.stop();
    this.#watch = undefined;
  }

  /** Mark the kind as one that the server does not have. */
  markAbsent(): void {
    this.stop();
    this.#objects = new Map();
    this.phase("absent");
  }

  /** Make the snapshot of what is known now; true if it differs from the last one. */
  publish(): boolean {
    if (!this.#dirty) return false;
    this.#dirty = false;
    const byKey = new Map(this.#objects);
    this.#snapshot = { phase: this.#phase, error: this.#error, byKey, items: [...byKey.values()] };
    return true;
  }

  replace(objects: KubeObject[]): void {
    this.#objects = new Map(objects.map((each) => [keyOf(each), this.#trim(each)]));
    if (this.#phase === "loading") this.#phase = "listed";
    this.#mark();
  }

  put(object: KubeObject): void {
    this.#objects.set(keyOf(object), this.#trim(object));
    this.#mark();
  }

  remove(object: KubeObject): void {
    if (this.#objects.delete(keyOf(object))) this.#mark();
  }

  phase(phase: Phase, error = ""): void {
    // A list that is read again stays on the screen meanwhile.
    if (phase === "absent" || phase === "forbidden") this.#objects = new Map();
    this.#phase = phase;
    this.#error = error;
    this.#mark();
  }

  #dirty = false;

  #mark(): void {
    this.#dirty = true;
    this.#changed();
  }
}
