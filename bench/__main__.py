"""``python -m bench [NAME…]``: run the measurements and keep what they say."""

import datetime
import importlib
import json
import os
import platform
import subprocess
import sys
import traceback
from pathlib import Path

from bench.figure import Figure, table

NAMES = (
    "ready",
    "api",
    "watches",
    "dashboard",
    "fairness",
    "churn",
    "replicas",
    "pool",
    "warmpool",
    "claim",
    "fork",
    "memory",
    "boot",
    "migration",
    "network",
    "services",
    "dns",
    "clones",
    "sampling",
    "limits",
    "autoscaler",
    "imports",
    "join",
    "hosts",
)
RESULTS = Path(__file__).parent / "results"


def machine() -> dict[str, object]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit.stdout.strip(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def main(names: list[str]) -> int:
    RESULTS.mkdir(exist_ok=True)
    failed = False
    for name in names or NAMES:
        print(f"\n== {name}", flush=True)
        try:
            figures: list[Figure] = importlib.import_module(f"bench.{name}").measure()
        except Exception:  # noqa: BLE001  the other measurements go on
            traceback.print_exc()
            failed = True
            continue
        print(table(figures), flush=True)
        whole = {"machine": machine(), "figures": [figure.document() for figure in figures]}
        (RESULTS / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
