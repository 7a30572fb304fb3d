/** What the user may do in a namespace, as SelfSubjectRulesReview answers it. Pure. */

export interface Rule {
  verbs?: string[];
  apiGroups?: string[];
  resources?: string[];
  resourceNames?: string[];
}

export interface RulesReview {
  status?: { resourceRules?: Rule[]; incomplete?: boolean };
}

export interface Deed {
  verb: string;
  group: string;
  /** The resource, with its subresource, as in virtualmachines/start. */
  resource: string;
  name?: string;
}

function matches(values: string[] | undefined, value: string): boolean {
  return (values ?? []).some((each) => each === "*" || each === value);
}

function covers(resources: string[] | undefined, resource: string): boolean {
  const subresource = resource.split("/")[1];
  return (resources ?? []).some(
    (each) => each === "*" || each === resource || (subresource !== undefined && each === `*/${subresource}`),
  );
}

/** The rights of one namespace. Rules of cluster-wide bindings are among those of each namespace. */
export class Rights {
  readonly #rules: Rule[];
  readonly #isComplete: boolean;
  readonly #namespace: string;

  private constructor(rules: Rule[], isComplete: boolean, namespace: string) {
    this.#rules = rules;
    this.#isComplete = isComplete;
    this.#namespace = namespace;
  }

  /** Rights that are not known: the server decides at each request. */
  static unknown(): Rights {
    return new Rights([], false, "");
  }

  static of(review: RulesReview, namespace: string): Rights {
    return new Rights(review.status?.resourceRules ?? [], !review.status?.incomplete, namespace);
  }

  allows(deed: Deed): boolean {
    if (!this.#isComplete) return true;
    return this.#rules.some(
      (rule) =>
        matches(rule.verbs, deed.verb) &&
        matches(rule.apiGroups, deed.group) &&
        covers(rule.resources, deed.resource) &&
        (!rule.resourceNames?.length || deed.name === undefined || rule.resourceNames.includes(deed.name)),
    );
  }

  /** Return why the user may not do something; empty if they may. */
  refusal(deed: Deed): string {
    if (this.allows(deed)) return "";
    return `Your role does not permit "${deed.verb}" on ${deed.resource} in ${this.#namespace}.`;
  }
}

/** The rights of each namespace that the page acts in. */
export interface AllRights {
  /** Return those of a namespace: unknown ones until the server has answered. */
  of(namespace: string): Rights;
}

export const NO_RIGHTS_KNOWN: AllRights = { of: () => Rights.unknown() };
