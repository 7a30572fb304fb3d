/** Requests to the API server that serves the page, with the user's own rights. */

import { managerOf } from "../model/changes";
import type { Status } from "./objects";

const BEARER_PROTOCOL = "base64url.bearer.authorization.k8s.io.";

/** An answer of the server that is no success, as the Status that it sent. */
export class ApiError extends Error {
  readonly code: number;
  readonly status: Status;

  constructor(code: number, status: Status) {
    super(status.message || `the server answered ${code}`);
    this.code = code;
    this.status = status;
  }
}

/** No answer: the server is down, or the network between. */
export class Unreachable extends Error {
  constructor() {
    super("The server does not answer. The page tries again by itself.");
  }
}

export interface Options {
  method?: string;
  body?: unknown;
  /** The body's media type; JSON unless a patch says otherwise. */
  type?: string;
  query?: Record<string, string>;
  /** Before which others the browser sends it, where more wait than it has connections. */
  priority?: RequestPriority;
  signal?: AbortSignal;
}

/** base64url without padding, of UTF-8. */
export function base64Url(value: string): string {
  const bytes = new TextEncoder().encode(value);
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/** Return an error's text for people, with the fields that it names. */
export function explain(error: unknown): string {
  if (error instanceof ApiError && error.code === 403) return `Not permitted: ${error.message}`;
  return error instanceof Error ? error.message : String(error);
}

export class Client {
  /** The name of the user, as far as it is known: managed fields say who changed an object. */
  user = "";
  /** The bearer token; it is in memory only. Empty behind a proxy that authenticates. */
  #token = "";
  /** Called when the server refuses the token (401). */
  onUnauthorized: () => void = () => {};

  set token(value: string) {
    this.#token = value;
  }

  get hasToken(): boolean {
    return this.#token !== "";
  }

  /** The query of requests that change an object. Without it the server takes the browser's name. */
  get manager(): { fieldManager: string } {
    return { fieldManager: managerOf(this.user) };
  }

  /** Return the decoded JSON of the answer. Raises ApiError, Unreachable, or AbortError. */
  async json<T>(path: string, options: Options = {}): Promise<T> {
    const response = await this.#send(path, options);
    return (await response.json()) as T;
  }

  /** Return the answer's text. Raises as `json` does. */
  async text(path: string, options: Options = {}): Promise<string> {
    return (await this.#send(path, options)).text();
  }

  async #send(path: string, options: Options): Promise<Response> {
    const query = new URLSearchParams(options.query ?? {}).toString();
    const headers: Record<string, string> = { Accept: "application/json, */*" };
    if (this.#token) headers.Authorization = `Bearer ${this.#token}`;
    if (options.body !== undefined) headers["Content-Type"] = options.type ?? "application/json";
    let response: Response;
    try {
      response = await fetch(query ? `${path}?${query}` : path, {
        method: options.method ?? "GET",
        headers,
        body: options.body === undefined ? undefined : encode(options.body),
        credentials: "omit",
        cache: "no-store",
        redirect: "error",
        priority: options.priority ?? "auto",
        signal: options.signal,
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Unreachable();
    }
    if (response.ok) return response;
    if (response.status === 401) this.onUnauthorized();
    throw new ApiError(response.status, await statusOf(response));
  }

  /** Read an answer as it comes, until it ends. Raises as `json` does. */
  async follow(path: string, options: Options, onPart: (text: string) => void): Promise<void> {
    const { body } = await this.#send(path, options);
    const reader = body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) onPart(part.value);
  }

  /** Open a WebSocket to a path of this origin; the token travels as kube-apiserver reads it. */
  socket(path: string, protocol: string): WebSocket {
    const socket = new WebSocket(this.socketUrl(path), this.protocols(protocol));
    socket.binaryType = "arraybuffer";
    return socket;
  }

  socketUrl(path: string): string {
    return new URL(path, location.href).href.replace(/^http/, "ws");
  }

  protocols(protocol: string): string[] {
    return this.#token ? [protocol, BEARER_PROTOCOL + base64Url(this.#token)] : [protocol];
  }
}

function encode(body: unknown): string {
  return typeof body === "string" ? body : JSON.stringify(body);
}

async function statusOf(response: Response): Promise<Status> {
  const body = await response.text().catch(() => "");
  try {
    const status = JSON.parse(body) as Status | null;
    if (status && typeof status === "object") return status;
  } catch {
    // Not a Status: a proxy between answers in text or HTML.
  }
  return { message: body.trim().slice(0, 300) || response.statusText, code: response.status };
}
