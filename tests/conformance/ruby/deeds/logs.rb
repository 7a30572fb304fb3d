KUBEVIRT.create_virtual_machine_instance(KNOWN[:machine].merge(secret("one")))
KUBEVIRT.watch_virtual_machine_instances(namespace: NAMESPACE, name: "one") do |told|
  break if told.object.status&.phase == "Running"
end
pod = CORE.get_pods(namespace: NAMESPACE).first.metadata.name
console = { container: "guest-console-log" }
same "", CORE.get_pod_log(pod, NAMESPACE, tail_lines: 5, timestamps: true, **console).to_s
same 400, refused { CORE.get_pod_log(pod, NAMESPACE, container: "nosuch") }.error_code
KUBEVIRT.delete_virtual_machine_instance("one", NAMESPACE)
CORE.watch_pod_log(pod, NAMESPACE, **console) { |line| raise "it says #{line}" } # until it ends
