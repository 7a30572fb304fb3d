"""Subresources: scale, binding, eviction, tokens, uploads, and KubeVirt's."""
