"""Kubernetes' protobuf encoding (application/vnd.kubernetes.protobuf).

kubectl sends it for objects that it creates itself (``create namespace``), typed clients for all
requests.  ``wire`` is the wire format, ``messages`` are the message definitions, ``reader`` decodes
into documents, ``writer`` encodes them.
"""

from corral.api.protobuf.reader import decode

__all__ = ["decode"]
