"""Status of nodes, pods and VMIs, and the manager that writes it to the API."""
