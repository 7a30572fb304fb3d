"""Kubernetes' protobuf: read, and written for those who take nothing else.

kubectl sends it for the objects that it makes itself (``create namespace``), and so do typed
clients for all that they send.  ``wire`` cuts bytes into fields, ``messages`` says which field of
which message has which number, ``reader`` makes documents of both, and ``writer`` the other way.
"""

from corral.api.protobuf.reader import decode

__all__ = ["decode"]
