"""Load on the API: wrk where a program is needed that is quicker than the server."""

import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable

from bench.cluster import Cluster

SECONDS = 6


def wrk(one: Cluster, path: str, *, clients: int, body: object = None) -> dict[str, float]:
    """Ask for a path again and again; answers requests a second and latencies in milliseconds."""
    program = shutil.which("wrk")
    if program is None:
        raise SystemExit("bench: wrk is missing: apt-get install wrk")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        for name, value in one.headers.items():
            script.write(f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n")
        if body is not None:
            script.write(f"wrk.method = 'POST'\nwrk.body = [==[{json.dumps(body)}]==]\n")
        script.flush()
        said = subprocess.run(
            [program, "--latency", "-t1", f"-c{clients}", f"-d{SECONDS}s", "-s", script.name,
             one.url + path],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    if "Non-2xx" in said:
        raise RuntimeError(said)
    figures = {"per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1])}
    for percent in (50, 99):
        number, unit = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s)", said).groups()
        figures[f"p{percent}_ms"] = float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
    return figures


def create_config_maps(one: Cluster, count: int) -> None:
    """Fill the store with small objects, over a few connections that stay open."""
    fill(one, "/api/v1/namespaces/default/configmaps", lambda number: {
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"filler-{number}"},
        "data": {"text": "x" * 1000},
    }, count)  # fmt: skip


def fill(one: Cluster, path: str, document: Callable[[int], object], count: int) -> None:
    def worker(first: int) -> None:
        connection = one.connect()
        for number in range(first, count, 8):
            connection.request("POST", path, json.dumps(document(number)), one.headers)
            answer = connection.getresponse()
            said = answer.read()
            if answer.status != 201:
                errors.append(f"{answer.status} {said[:300]!r}")
                return

    errors: list[str] = []
    threads = [threading.Thread(target=worker, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])
