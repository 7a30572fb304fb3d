kind = { apiVersion: "kubevirt.io/v1", kind: "VirtualMachineInstanceReplicaSet" }
apply = lambda do |replicas, **options|
  wanted = SET.merge(kind, spec: SET[:spec].merge(replicas: replicas))
  KUBEVIRT.apply_virtual_machine_instance_replica_set(wanted, options).spec.replicas
end
same 1, apply.call(1, field_manager: "me")
conflict = refused { apply.call(0, field_manager: "you", force: false) }
same [409, true], [conflict.error_code, conflict.message.include?('conflict with "me"')]
same 0, apply.call(0, field_manager: "you")
