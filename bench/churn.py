"""Objects that come, change and go, with watchers: what the manager holds must not grow.

It is measured once the window of changes is full and moves on.  ``CHURN_MINUTES`` says for how
long: 3 by default, 60 for the figure of the record.
"""

import contextlib
import http.client
import json
import os
import re
import statistics
import threading
import time
from collections.abc import Iterator

from bench.api import MERGE, VMIS
from bench.cluster import Cluster, cluster, vmi
from bench.figure import Figure

MINUTES = float(os.environ.get("CHURN_MINUTES", "3"))
LONGEST_WARM_UP_SECONDS = 360
CLIENTS = 8
WATCHERS = 8
OBJECTS = 125
"""Of each client, at any time."""


def measure() -> list[Figure]:
    with cluster("--machine", "hollow", "--no-controllers") as one:
        churn = Churn(one)
        with churn.running():
            warm_up = churn.warm_up()
            samples, begun, writes = [], time.monotonic(), churn.writes
            while time.monotonic() - begun < MINUTES * 60:
                time.sleep(min(10, MINUTES * 6))
                samples.append(one.memory_mib())
            rate = (churn.writes - writes) / (time.monotonic() - begun)
            left = one.total(VMIS)
    if left > CLIENTS * (OBJECTS + 2):
        raise RuntimeError(f"{left} objects are left: what is deleted does not go")
    third = max(1, len(samples) // 3)
    first, last = statistics.median(samples[:third]), statistics.median(samples[-third:])
    notes = {"minutes": MINUTES, "warm_up_seconds": round(warm_up)}
    return [
        Figure("manager resident under churn", samples, "MiB", "", notes),
        Figure("growth from first to last third", [(last / first - 1) * 100], "%", "within ±5 %"),
        Figure("writes of the churn", [rate], "/s"),
    ]


class Churn:
    """Clients that create, change and delete, and watchers that read along."""

    def __init__(self, one: Cluster) -> None:
        self._one = one
        self._ended = threading.Event()
        self._failures: list[str] = []
        self.writes = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        clients = [threading.Thread(target=self._write, args=(n,)) for n in range(CLIENTS)]
        watchers = [threading.Thread(target=self._watch) for _ in range(WATCHERS)]
        for thread in (*watchers, *clients):
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in (*clients, *watchers):
                thread.join()
        if self._failures:
            raise RuntimeError(self._failures[0])

    def warm_up(self) -> float:
        """Wait until the window has moved over all that was there before; the seconds it took."""
        begun, first = time.monotonic(), self._measured("corral_store_revision")
        while self._measured("corral_store_compacted_revision") < first + 10_000:
            if self._failures or time.monotonic() - begun > LONGEST_WARM_UP_SECONDS:
                break
            time.sleep(2)
        return time.monotonic() - begun

    def _measured(self, name: str) -> float:
        with contextlib.closing(self._one.connect()) as connection:
            connection.request("GET", "/metrics", headers=self._one.headers)
            text = connection.getresponse().read().decode()
        return float(next(re.finditer(rf"^{name} (\S+)", text, re.MULTILINE))[1])

    def _write(self, client: int) -> None:
        connection, number = self._one.connect(), 0
        while not self._ended.is_set() and not self._failures:
            name = f"churn-{client}-{number}"
            # no controller is there to take the finalizers away, and with them objects would stay
            change = {"metadata": {"labels": {"number": str(number)}, "finalizers": []}}
            self._send(connection, "POST", VMIS, vmi(name))
            self._send(connection, "PATCH", f"{VMIS}/{name}", change)
            if number >= OBJECTS:
                self._send(connection, "DELETE", f"{VMIS}/churn-{client}-{number - OBJECTS}")
            number += 1
        connection.close()

    def _send(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: object = None
    ) -> None:
        headers = self._one.headers | (MERGE if method == "PATCH" else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 300:
            self._failures.append(f"{method} {path}: {answer.status} {said[:300]!r}")
        self.writes += 1

    def _watch(self) -> None:
        """Read along; watches are opened anew again and again, as those of clients are."""
        while not self._ended.is_set() and not self._failures:
            connection = self._one.connect()
            query = "watch=true&timeoutSeconds=20&resourceVersion=0"
            connection.request("GET", f"{VMIS}?{query}", headers=self._one.headers)
            answer = connection.getresponse()
            while answer.read1(1 << 20) and not self._ended.is_set():
                pass
            connection.close()
