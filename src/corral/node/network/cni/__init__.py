"""The backend ``cni``: the interface of each pod is made by the host's CNI plugins.

``configuration`` reads what the host has in /etc/cni/net.d, ``plugin`` runs one plugin, ``chain``
those of a configuration, ``attachments`` keeps on disk what is to be released, and ``networks``
attaches machines.
"""
