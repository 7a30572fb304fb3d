missing = refused { CORE.get_secret("nosuch", NAMESPACE) }
same Kubeclient::ResourceNotFoundError, missing.class
same [404, 'secrets "nosuch" not found'], [missing.error_code, missing.message]
wrong = SET.merge(spec: SET[:spec].merge(replicas: -1))
invalid = refused { KUBEVIRT.create_virtual_machine_instance_replica_set(wrong) }
same [422, true], [invalid.error_code, invalid.message.include?("spec.replicas")]
KUBEVIRT.create_virtual_machine_instance_replica_set(SET)
twice = refused { KUBEVIRT.create_virtual_machine_instance_replica_set(SET) }
same [409, true], [twice.error_code, twice.message.include?("already exists")]
strategic = refused { KUBEVIRT.patch_virtual_machine_instance_replica_set("web", {}, NAMESPACE) }
same 415, strategic.error_code
