"""Which cluster a command speaks to."""

import os
from pathlib import Path

from corral.cli.problem import Problem
from corral.client import kubeconfig
from corral.client.kubeconfig import Kubeconfig, KubeconfigError
from corral.config import Layout


def cluster(layout: Layout, chosen: Path | None = None) -> Kubeconfig:
    """The kubeconfig that was named, else $KUBECONFIG, else the data directory's own."""
    named = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    path = chosen or (Path(named) if named else layout.kubeconfig)
    if not path.exists():
        raise Problem(
            f"there is no kubeconfig {path}",
            "Start corral (corral up --detach), or name another with --kubeconfig.",
        )
    try:
        return kubeconfig.load(path)
    except KubeconfigError as error:
        raise Problem(str(error)) from error
