made = CORE.create_config_map(secret("a").merge(data: { key: "word" }))
made.data.key = "other"
same "other", CORE.update_config_map(made).data.key
conflict = refused { CORE.update_config_map(made) }
same 409, conflict.error_code
same "other", CORE.get_config_map("a", NAMESPACE).data.key
same "Success", CORE.delete_config_map("a", NAMESPACE).status
same Kubeclient::ResourceNotFoundError, refused { CORE.get_config_map("a", NAMESPACE) }.class
