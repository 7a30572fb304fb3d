"""kube-proxy of a node: DNAT from Service addresses to pods, by nftables.

``service_rules`` computes the rules of one Service, ``nft_rules`` joins those of all Services and
computes the changes; neither does I/O.  ``proxy`` watches the API and writes rules, ``host_ports``
opens NodePort and LoadBalancer Services on the host.  No connection passes through this process.
"""
