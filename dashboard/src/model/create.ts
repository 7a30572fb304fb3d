/** Objects that the form makes. Pure. */

export type What = "set" | "pool" | "vm";

export interface Form {
  what: What;
  name: string;
  namespace: string;
  replicas: number;
  image: string;
  memory: string;
  cores: number;
  userData: string;
  sharesNetwork: boolean;
}

export const EXAMPLES: Record<What, { title: string; text: string; name: string }> = {
  set: { title: "Replica set", text: "Like machines that keep nothing: one that goes is replaced by a new one.", name: "web" },
  pool: { title: "Pool", text: "Machines with names of their own (web-0, web-1), each a VirtualMachine that can be stopped.", name: "web" },
  vm: { title: "Virtual machine", text: "One machine that can be stopped and started again.", name: "desk" },
};

/** The image of the examples: a node of corral has it, or pulls it once. */
export const EXAMPLE_IMAGE = "kubevirt/cirros-container-disk-demo:latest";

export function blankForm(namespace: string, image = EXAMPLE_IMAGE): Form {
  return {
    what: "set",
    name: "web",
    namespace: namespace || "default",
    replicas: 3,
    image,
    memory: "128Mi",
    cores: 1,
    userData: "",
    sharesNetwork: true,
  };
}

/** Return the object that the form describes. */
export function objectOf(form: Form): Record<string, unknown> {
  const metadata = { name: form.name, namespace: form.namespace };
  const labels = { app: form.name };
  const template = { metadata: { labels }, spec: machineSpec(form) };
  if (form.what === "set")
    return {
      apiVersion: "kubevirt.io/v1",
      kind: "VirtualMachineInstanceReplicaSet",
      metadata,
      spec: { replicas: form.replicas, selector: { matchLabels: labels }, template },
    };
  const machine = { runStrategy: "Always", template };
  if (form.what === "vm") return { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", metadata, spec: machine };
  return {
    apiVersion: "pool.kubevirt.io/v1beta1",
    kind: "VirtualMachinePool",
    metadata,
    spec: { replicas: form.replicas, selector: { matchLabels: labels }, virtualMachineTemplate: { metadata: { labels }, spec: machine } },
  };
}

function machineSpec(form: Form): Record<string, unknown> {
  const disks = [{ name: "root", disk: { bus: "virtio" } }];
  const volumes: Record<string, unknown>[] = [{ name: "root", containerDisk: { image: form.image } }];
  if (form.userData) {
    disks.push({ name: "cloud-init", disk: { bus: "virtio" } });
    volumes.push({ name: "cloud-init", cloudInitNoCloud: { userData: form.userData } });
  }
  const devices: Record<string, unknown> = { disks };
  if (form.sharesNetwork) devices.interfaces = [{ name: "default", masquerade: {} }];
  return {
    domain: { cpu: { cores: form.cores }, memory: { guest: form.memory }, devices },
    ...(form.sharesNetwork ? { networks: [{ name: "default", pod: {} }] } : {}),
    volumes,
  };
}

/** Return the line of a field in YAML, for an error that names the field; 0 if it is not there. */
export function lineOfField(yaml: string, field: string): number {
  const keys = field.replace(/\[(\d+)\]/g, "").split(".").filter(Boolean);
  const lines = yaml.split("\n");
  let line = 0;
  let from = 0;
  for (const key of keys) {
    const found = lines.findIndex((each, index) => index >= from && new RegExp(`^[\\s-]*"?${escaped(key)}"?\\s*:`).test(each));
    if (found < 0) break;
    line = found + 1;
    from = found + 1;
  }
  return line;
}

function escaped(key: string): string {
  return key.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}
