/** The user's rights, which are asked of the server once for each namespace. */

import type { Client } from "./client";
import { Rights, type AllRights, type RulesReview } from "../model/rights";

const PATH = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";

export class AskedRights implements AllRights {
  readonly #client: Client;
  readonly #changed: () => void;
  #known = new Map<string, Rights>();

  /** `changed` is called when the server has answered. */
  constructor(client: Client, changed: () => void) {
    this.#client = client;
    this.#changed = changed;
  }

  of(namespace: string): Rights {
    const known = this.#known.get(namespace);
    if (known) return known;
    this.ask(namespace);
    return Rights.unknown();
  }

  /** Ask for a namespace's rights, again if they are known: what is known holds meanwhile. */
  ask(namespace: string): void {
    const known = this.#known;
    if (!known.has(namespace)) known.set(namespace, Rights.unknown());
    void this.#read(namespace).then((rights) => {
      known.set(namespace, rights);
      this.#changed();
    });
  }

  /** Forget them all: another user may sign in. */
  forget(): void {
    this.#known = new Map();
  }

  /** Where the server does not say what its user may do, it decides at each request. */
  async #read(namespace: string): Promise<Rights> {
    const body = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } };
    try {
      return Rights.of(await this.#client.json<RulesReview>(PATH, { method: "POST", body }), namespace);
    } catch {
      return Rights.unknown();
    }
  }
}
