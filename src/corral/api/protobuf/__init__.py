"""Kubernetes' protobuf: read, never written.

kubectl sends it for the objects that it makes itself (``create namespace``), and so do typed
clients; both read JSON answers.  ``wire`` cuts bytes into fields, ``numbers`` says which field of
which type has which number, ``reader`` makes documents of both.
"""

from corral.api.protobuf.reader import decode

__all__ = ["decode"]
