KUBEVIRT.create_virtual_machine_instance(KNOWN[:machine].merge(secret("one")))
KUBEVIRT.watch_virtual_machine_instances(namespace: NAMESPACE, name: "one") do |event|
  break if event.object.status&.phase == "Running"
end
pod = CORE.get_pods(namespace: NAMESPACE).first.metadata.name
known = { container: "guest-console-log", tail_lines: 5, timestamps: true, since_time: Time.now }
same "", CORE.get_pod_log(pod, NAMESPACE, **known).to_s # simulated machines print nothing
same 400, refused { CORE.get_pod_log(pod, NAMESPACE, container: "nosuch") }.error_code
