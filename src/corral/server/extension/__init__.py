"""Webhooks and the aggregated API of ``corral controllers``, for the API server of a Kubernetes.

``webhooks`` answers AdmissionReviews, ``aggregated_api`` is subresources.kubevirt.io.  Both run the
functions of the embedded server; ``remote_objects`` reads what these need from the API server.
"""
