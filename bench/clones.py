"""Fifty clones of one image of 1 GiB: how long each takes, and what it adds to the disk."""

import json
import os
import time

from bench.cluster import Cluster, cluster
from bench.figure import Figure
from corral.node.storage import Storage

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
COUNT = 50
GiB = 1 << 30


def measure() -> list[Figure]:
    with cluster() as one:
        storage = Storage(one.directory / "storage")
        make_class(one)
        one.call("POST", CLAIMS, claim("golden"))
        wait(one, 1)
        fill(storage, next(storage.volumes()).handle)
        before = storage.usage().used_bytes
        begun = time.perf_counter()
        one.call("POST", CLAIMS, claim("clone", source="golden"))
        wait(one, 2)
        first = time.perf_counter() - begun
        begun = time.perf_counter()
        post(one, [claim(f"clone-{number}", source="golden") for number in range(COUNT)])
        wait(one, COUNT + 2)
        all_of_them = time.perf_counter() - begun
        added = (storage.usage().used_bytes - before) / (COUNT + 1) / (1 << 20)
        took = [on_disk(storage, f"bench-{number}") * 1e3 for number in range(COUNT)]
    return [
        Figure("a volume made and cloned, on disk", took, "ms", "≤ 100 ms"),
        Figure("new disk of each clone", [added], "MiB", "≤ 1 MiB"),
        Figure("the first clone, from its claim to Bound", [first], "s"),
        Figure(f"{COUNT} more at once, from their claims to Bound", [all_of_them], "s"),
    ]


def make_class(one: Cluster) -> None:
    """A class that promises more than this host may have, as nothing is written here."""
    document = {
        "metadata": {"name": "bench"},
        "provisioner": "corral.dev/directory",
        "parameters": {"overcommitPercent": "10000"},
    }
    one.call("POST", CLASSES, document)


def claim(name: str, source: str = "") -> dict:
    clone = {"dataSource": {"kind": "PersistentVolumeClaim", "name": source}} if source else {}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "bench",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **clone,
        },
    }


def post(one: Cluster, documents: list[dict]) -> None:
    """All by one connection: to open fifty takes as long as to serve them."""
    connection = one.connect()
    for document in documents:
        connection.request("POST", CLAIMS, json.dumps(document), one.headers)
        answer = connection.getresponse()
        if answer.status >= 400:
            raise RuntimeError(f"POST {CLAIMS}: {answer.status} {answer.read()!r}")
        answer.read()
    connection.close()


def wait(one: Cluster, count: int) -> None:
    """Until so many claims are bound."""
    while True:
        claims = one.call("GET", CLAIMS)["items"]
        if sum(each["status"]["phase"] == "Bound" for each in claims) == count:
            return
        time.sleep(0.1)


def fill(storage: Storage, handle: str) -> None:
    content = storage.work_directory(handle) / "content"
    with content.open("wb") as file:
        for _ in range(GiB >> 20):
            file.write(os.urandom(1 << 20))
    storage.populate(handle, content, "raw")


def on_disk(storage: Storage, handle: str) -> float:
    """Seconds for what the provisioner does with the files of one clone."""
    source = next(each.handle for each in storage.volumes() if each.populated)
    begun = time.perf_counter()
    storage.provision(handle, GiB, overcommit_percent=10000)
    storage.clone(source, handle, overcommit_percent=10000)
    return time.perf_counter() - begun
