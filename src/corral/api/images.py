"""What a container image's name says about it."""


def pull_policy(image: str) -> str:
    """Always for a tag that moves (``latest``, or none), IfNotPresent for one that stays.

    Kubernetes' default of ``imagePullPolicy``; a digest never moves.
    """
    name = image.rpartition("/")[2]
    if "@" not in name and name.partition(":")[2] in ("", "latest"):
        return "Always"
    return "IfNotPresent"
