"""Controllers of kube-controller-manager and kube-scheduler, which a cluster would bring.

They are off where corral runs on a cluster. To add one: write its module and name its factory in
``daemon/stand_ins``.
"""
