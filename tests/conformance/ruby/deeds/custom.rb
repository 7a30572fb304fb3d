made = KUBEVIRT.create_virtual_machine_instance_replica_set(SET)
same "VirtualMachineInstanceReplicaSet", made.kind
KUBEVIRT.watch_virtual_machine_instance_replica_sets(namespace: NAMESPACE, name: "web") do |event|
  break if event.object.status&.readyReplicas == 2
end
machines = KUBEVIRT.get_virtual_machine_instances(namespace: NAMESPACE)
same %w[Running Running], machines.map { |each| each.status.phase }
pods = CORE.get_pods(namespace: NAMESPACE)
same machines.flat_map { |each| each.status.activePods.to_h.keys.map(&:to_s) }.sort,
     pods.map { |each| each.metadata.uid }.sort
foreground = { propagationPolicy: "Foreground" }
going = KUBEVIRT.delete_virtual_machine_instance_replica_set(
  "web", NAMESPACE, delete_options: foreground
)
since = { namespace: NAMESPACE, resource_version: going.metadata.resourceVersion }
KUBEVIRT.watch_virtual_machine_instance_replica_sets(since) do |event|
  break if event.type == "DELETED"
end
same [], names(KUBEVIRT.get_virtual_machine_instances(namespace: NAMESPACE))
