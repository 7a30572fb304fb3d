"""kube-proxy of this machine: whoever calls a Service's address reaches one of its pods.

``service_rules`` says what one Service needs of the packet filter, ``nft_rules`` puts the parts of
all Services together and finds what changes; both are pure.  ``proxy`` follows the API and writes
rules, ``host_ports`` opens NodePort and LoadBalancer Services to the host.  No connection passes
through this process.
"""
