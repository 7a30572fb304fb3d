"""The kubelet's HTTP server: logs, exec, port-forward, and the endpoints of VMIs."""
