/** Objects of the Kubernetes API, as far as the page reads them. Every field may be absent. */

export interface OwnerReference {
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
}

export interface ManagedField {
  manager?: string;
  operation?: string;
  subresource?: string;
  time?: string;
  fieldsV1?: Record<string, unknown>;
}

export interface Metadata {
  name: string;
  namespace?: string;
  uid?: string;
  resourceVersion?: string;
  generation?: number;
  creationTimestamp?: string;
  deletionTimestamp?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  ownerReferences?: OwnerReference[];
  finalizers?: string[];
  managedFields?: ManagedField[];
}

export interface Condition {
  type: string;
  status: string;
  reason?: string;
  message?: string;
  lastTransitionTime?: string;
}

/** spec and status are read with `at`, since the server of another version may have other fields. */
export interface KubeObject {
  apiVersion?: string;
  kind?: string;
  metadata: Metadata;
  spec?: unknown;
  status?: unknown;
}

export interface KubeEvent extends KubeObject {
  type?: string;
  reason?: string;
  message?: string;
  note?: string;
  count?: number;
  firstTimestamp?: string | null;
  lastTimestamp?: string | null;
  eventTime?: string | null;
  series?: { count?: number; lastObservedTime?: string };
  involvedObject?: { kind?: string; name?: string; namespace?: string; uid?: string };
  source?: { component?: string; host?: string };
  reportingComponent?: string;
}

export interface StatusCause {
  field?: string;
  message?: string;
  reason?: string;
}

export interface Status {
  message?: string;
  reason?: string;
  code?: number;
  details?: { name?: string; kind?: string; causes?: StatusCause[]; retryAfterSeconds?: number };
}

/** Return the value at a path of keys, or undefined where a part of the path is absent. */
export function at(value: unknown, ...path: (string | number)[]): unknown {
  let here: unknown = value;
  for (const key of path) {
    if (typeof here !== "object" || here === null) return undefined;
    here = (here as Record<string | number, unknown>)[key];
  }
  return here;
}

/** Return the text at a path; empty where it is absent or no text. */
export function text(value: unknown, ...path: (string | number)[]): string {
  const found = at(value, ...path);
  return typeof found === "string" ? found : "";
}

/** Return the number at a path; `otherwise` where it is absent or no number. */
export function count(value: unknown, path: (string | number)[], otherwise = 0): number {
  const found = at(value, ...path);
  return typeof found === "number" ? found : otherwise;
}

/** Return the list at a path; empty where it is absent or no list. */
export function list(value: unknown, ...path: (string | number)[]): unknown[] {
  const found = at(value, ...path);
  return Array.isArray(found) ? found : [];
}

export function conditions(object: KubeObject | undefined): Condition[] {
  return list(object, "status", "conditions") as Condition[];
}

export function condition(object: KubeObject | undefined, type: string): Condition | undefined {
  return conditions(object).find((each) => each.type === type);
}

export function isTrue(object: KubeObject | undefined, type: string): boolean {
  return condition(object, type)?.status === "True";
}

/** Report whether a node takes no more pods, as after kubectl cordon. */
export function isCordoned(node: KubeObject): boolean {
  return (node.spec as { unschedulable?: boolean } | undefined)?.unschedulable === true;
}

/** Return the key of an object in its store: namespace/name, or the name of one without namespace. */
export function keyOf(object: KubeObject): string {
  const { namespace, name } = object.metadata;
  return namespace ? `${namespace}/${name}` : name;
}

export function controllerOf(object: KubeObject): OwnerReference | undefined {
  return object.metadata.ownerReferences?.find((each) => each.controller);
}
