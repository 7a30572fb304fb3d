/** The kinds that the page reads. One that the server does not have is absent from the page. */

export interface Kind {
  /** The resource's name in paths and in rules of RBAC. */
  plural: string;
  group: string;
  /** Known versions, the preferred one first. */
  versions: readonly string[];
  kind: string;
  /** What kubectl calls it. */
  short: string;
  /** What people call one, and several, of it. */
  title: string;
  titles: string;
  namespaced: boolean;
}

function kind(
  plural: string,
  group: string,
  versions: string[],
  name: string,
  short: string,
  title: string,
  titles: string,
  namespaced = true,
): Kind {
  return { plural, group, versions, kind: name, short, title, titles, namespaced };
}

export const KINDS = {
  sets: kind("virtualmachineinstancereplicasets", "kubevirt.io", ["v1", "v1alpha3"], "VirtualMachineInstanceReplicaSet", "vmirs", "replica set", "replica sets"),
  pools: kind("virtualmachinepools", "pool.kubevirt.io", ["v1beta1", "v1alpha1"], "VirtualMachinePool", "vmpool", "pool", "pools"),
  vms: kind("virtualmachines", "kubevirt.io", ["v1", "v1alpha3"], "VirtualMachine", "vm", "virtual machine", "virtual machines"),
  vmis: kind("virtualmachineinstances", "kubevirt.io", ["v1", "v1alpha3"], "VirtualMachineInstance", "vmi", "machine", "machines"),
  migrations: kind("virtualmachineinstancemigrations", "kubevirt.io", ["v1", "v1alpha3"], "VirtualMachineInstanceMigration", "vmim", "migration", "migrations"),
  warmPools: kind("virtualmachinewarmpools", "corral.dev", ["v1alpha1"], "VirtualMachineWarmPool", "vmwp", "warm pool", "warm pools"),
  claims: kind("virtualmachineclaims", "corral.dev", ["v1alpha1"], "VirtualMachineClaim", "vmclaim", "claim", "claims"),
  checkpoints: kind("virtualmachinecheckpoints", "corral.dev", ["v1alpha1"], "VirtualMachineCheckpoint", "vmcheckpoint", "checkpoint", "checkpoints"),
  dataVolumes: kind("datavolumes", "cdi.kubevirt.io", ["v1beta1"], "DataVolume", "dv", "data volume", "data volumes"),
  nodes: kind("nodes", "", ["v1"], "Node", "node", "node", "nodes", false),
  events: kind("events", "", ["v1"], "Event", "event", "event", "events"),
} as const;

export type KindName = keyof typeof KINDS;
export const KIND_NAMES = Object.keys(KINDS) as KindName[];

/** Return the path of a resource: of its objects in a namespace, or in all for an empty one. */
export function pathOf(kind: Kind, version: string, namespace = "", name = ""): string {
  const root = kind.group ? `/apis/${kind.group}/${version}` : `/api/${version}`;
  const scope = kind.namespaced && namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${root}${scope}/${kind.plural}${name ? `/${encodeURIComponent(name)}` : ""}`;
}

/** Return the name under which the page has a kind, or undefined. */
export function kindNamed(kind: string): KindName | undefined {
  return KIND_NAMES.find((each) => KINDS[each].kind === kind);
}
