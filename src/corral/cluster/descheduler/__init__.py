"""A stand-in for sigs' descheduler: evicts pods of VMIs that its policy wants elsewhere.

``policy`` reads the policy, ``arguments`` those of its plugins.  ``snapshot`` is the cluster as one
cycle sees it, ``default_evictor`` says which pods may go, and ``strategies`` which of them go;
these are pure.  ``descheduler_controller`` runs the cycles.
"""

from corral.cluster.descheduler.descheduler_controller import controller

__all__ = ["controller"]
