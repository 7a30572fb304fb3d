KUBEVIRT.create_virtual_machine_instance_replica_set(SET)
merge = { spec: { replicas: 1 } }
changed = KUBEVIRT.merge_patch_virtual_machine_instance_replica_set("web", merge, NAMESPACE)
same 1, changed.spec.replicas
json = [{ op: "replace", path: "/spec/replicas", value: 0 }]
changed = KUBEVIRT.json_patch_virtual_machine_instance_replica_set("web", json, NAMESPACE)
same 0, changed.spec.replicas
CORE.create_service_account(secret("a").merge(secrets: [{ name: "a" }]))
changed = CORE.patch_service_account("a", { secrets: [{ name: "b" }] }, NAMESPACE)
same %w[a b], changed.secrets.map(&:name).sort
