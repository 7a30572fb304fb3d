same true, CORE.api_valid?
same true, KUBEVIRT.api_valid?
same "Active", CORE.get_namespace(NAMESPACE).status.phase
