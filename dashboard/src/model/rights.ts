/** What the user may do, as SelfSubjectRulesReview answers it for one namespace. */

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

export class Rights {
  readonly #rules: Rule[];
  readonly #isComplete: boolean;

  private constructor(rules: Rule[], isComplete: boolean) {
    this.#rules = rules;
    this.#isComplete = isComplete;
  }

  /** Rights that are not known: the server decides at each request. */
  static unknown(): Rights {
    return new Rights([], false);
  }

  static of(review: RulesReview): Rights {
    return new Rights(review.status?.resourceRules ?? [], !review.status?.incomplete);
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
  refusal(deed: Deed, namespace: string): string {
    if (this.allows(deed)) return "";
    const where = namespace ? ` in ${namespace}` : "";
    return `Your role does not permit "${deed.verb}" on ${deed.resource}${where}.`;
  }
}
