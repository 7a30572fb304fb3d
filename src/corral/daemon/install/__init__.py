"""Installation on a Kubernetes: the documents that it takes, and how they get there.

``manifests`` lists all of them, in the order in which they are applied; ``installer`` applies and
removes them.
"""
