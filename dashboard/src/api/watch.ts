/** A list that follows the server: a list over HTTP, then a watch over a WebSocket.
 *
 * Watches would otherwise occupy the six connections that a browser has for one origin.
 */

import { ApiError, type Client } from "./client";
import { at, text, type KubeObject } from "./objects";

/** Another page waits until the page has drawn what has come meanwhile: most fleets fit into one. */
const PAGE = "1000";
/** kube-apiserver answers the one subprotocol that stands beside the token, whatever its name. */
const PROTOCOL = "json.k8s.io";
const SHORTEST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 10_000;
const SHORTEST_WATCH_MS = 1_000;
/** Between two lists where something between the page and the server carries no WebSockets. */
const POLL_MS = 3_000;

/** "listed" is what has been read, and is not followed yet. */
export type Phase = "loading" | "listed" | "live" | "polling" | "absent" | "forbidden" | "down";

export interface Sink {
  /** Replace everything. */
  replace(objects: KubeObject[]): void;
  put(object: KubeObject): void;
  remove(object: KubeObject): void;
  phase(phase: Phase, error?: string): void;
}

interface ListPage {
  metadata?: { resourceVersion?: string; continue?: string };
  items?: KubeObject[] | null;
}

type Ending = "again" | "expired" | "refused";

export class Watch {
  readonly #client: Client;
  readonly #path: string;
  readonly #sink: Sink;
  readonly #priority: RequestPriority;
  readonly #abort = new AbortController();
  #failures = 0;
  #refusals = 0;
  #version = "";

  /** `priority` is that of its lists, among all requests of the page. */
  constructor(client: Client, path: string, sink: Sink, priority: RequestPriority) {
    this.#client = client;
    this.#path = path;
    this.#sink = sink;
    this.#priority = priority;
  }

  /** Follow the list until `stop`. */
  async run(): Promise<void> {
    this.#sink.phase("loading");
    let relist = true;
    while (!this.#stopped) {
      try {
        if (relist) await this.#list();
        const began = performance.now();
        const ending = await this.#follow();
        if (this.#stopped) return;
        // A watch that the server ends in time goes on where it was.
        relist = ending !== "again";
        if (ending === "refused") await this.#afterRefusal();
        // Whatever ends watches at once must not be asked without a pause.
        else if (performance.now() - began < SHORTEST_WATCH_MS) await this.#pause(this.#backOff());
      } catch (error) {
        if (this.#stopped) return;
        relist = true;
        if (error instanceof ApiError && error.code === 404) return this.#sink.phase("absent");
        if (error instanceof ApiError && error.code === 403) return this.#sink.phase("forbidden", error.message);
        if (error instanceof ApiError && error.code === 401) return this.#sink.phase("down", error.message);
        this.#sink.phase("down", error instanceof Error ? error.message : String(error));
        await this.#pause(this.#backOff());
      }
    }
  }

  stop(): void {
    this.#abort.abort();
  }

  get #stopped(): boolean {
    return this.#abort.signal.aborted;
  }

  /** The first refusal may be that of a server that is down, which the next list finds out. */
  async #afterRefusal(): Promise<void> {
    this.#refusals += 1;
    if (this.#refusals === 1) return;
    this.#sink.phase("polling");
    await this.#pause(POLL_MS);
  }

  async #list(): Promise<void> {
    const objects: KubeObject[] = [];
    let next = "";
    do {
      const query: Record<string, string> = { limit: PAGE };
      if (next) query.continue = next;
      const page = await this.#client.json<ListPage>(this.#path, { query, priority: this.#priority, signal: this.#abort.signal });
      objects.push(...(page.items ?? []));
      next = page.metadata?.continue ?? "";
      this.#version = page.metadata?.resourceVersion ?? "";
    } while (next);
    this.#sink.replace(objects);
  }

  /** Follow changes until the socket closes; "refused" if it never opened. */
  #follow(): Promise<Ending> {
    const query = new URLSearchParams({
      watch: "1",
      allowWatchBookmarks: "true",
      resourceVersion: this.#version,
    });
    const socket = this.#client.socket(`${this.#path}?${query}`, PROTOCOL);
    const { signal } = this.#abort;
    return new Promise<Ending>((resolve) => {
      let ending: Ending = "refused";
      const close = () => socket.close();
      signal.addEventListener("abort", close);
      socket.onopen = () => {
        ending = "again";
        this.#failures = 0;
        this.#refusals = 0;
        this.#sink.phase("live");
      };
      socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => {
        if (!this.#apply(decode(message.data))) {
          ending = "expired";
          socket.close();
        }
      };
      socket.onclose = () => {
        signal.removeEventListener("abort", close);
        resolve(ending);
      };
    });
  }

  /** Apply one event; false if the watch cannot go on from its version. */
  #apply(message: string): boolean {
    const event = JSON.parse(message) as { type: string; object: KubeObject };
    if (event.type === "ERROR") return false;
    this.#version = text(event.object, "metadata", "resourceVersion") || this.#version;
    if (event.type === "DELETED") this.#sink.remove(event.object);
    else if (event.type !== "BOOKMARK" && at(event.object, "metadata")) this.#sink.put(event.object);
    return true;
  }

  #backOff(): number {
    this.#failures += 1;
    const longest = Math.min(LONGEST_PAUSE_MS, SHORTEST_PAUSE_MS * 2 ** this.#failures);
    return longest * (0.5 + Math.random() / 2);
  }

  #pause(ms: number): Promise<void> {
    const { signal } = this.#abort;
    return new Promise((resolve) => {
      const timer = setTimeout(done, ms);
      function done(): void {
        clearTimeout(timer);
        signal.removeEventListener("abort", done);
        resolve();
      }
      signal.addEventListener("abort", done);
    });
  }
}

const DECODER = new TextDecoder();

/** Events in JSON come in text frames, those of other encodings in binary ones. */
function decode(data: string | ArrayBuffer): string {
  return typeof data === "string" ? data : DECODER.decode(data);
}
