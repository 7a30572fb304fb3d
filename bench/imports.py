"""Imports by HTTP from this machine, against qemu-img convert of the same file.

Both end when the disk is durable.  The import counts from the DataVolume's creation until it has
Succeeded; the convert reads the file from memory, and the server sends it from there.
"""

import json
import multiprocessing
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.cluster import Cluster, cluster
from bench.figure import Figure

VOLUMES = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes"
ROUNDS = 3
MiB = 1 << 20
SIZE = 1024 * MiB


def measure() -> list[Figure]:
    figures = []
    with tempfile.TemporaryDirectory() as name, cluster("--allow-destination", "127.0.0.1") as one:
        directory = Path(name)
        for file, what in images(directory):
            server, url = serve(file)
            try:
                figures += against(one, file, url, what)
            finally:
                server.terminate()
                server.join()
    return figures


def images(directory: Path) -> list[tuple[Path, str]]:
    """A disk of 1 GiB that is 600 MiB full, in three forms; half of what is in it can be packed."""
    raw, plain, packed = (directory / name for name in ("raw.img", "plain.qcow2", "packed.qcow2"))
    letters = random.Random(1)
    with raw.open("wb") as file:
        for number in range(1024):
            if number % 5 < 3:
                file.seek(number * MiB)
                file.write(letters.randbytes(MiB // 2) + b"corral. " * (MiB // 16))
        file.truncate(SIZE)
    convert(raw, plain)
    convert(raw, packed, "-c")
    return [(plain, "qcow2"), (raw, "raw"), (packed, "compressed qcow2")]


def convert(source: Path, target: Path, *flags: str) -> None:
    command = ("qemu-img", "convert", "-O", "qcow2", *flags, str(source), str(target))
    subprocess.run(command, check=True)
    descriptor = os.open(target, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def against(one: Cluster, file: Path, url: str, what: str) -> list[Figure]:
    """Both by turns, so that what the disk does at the moment meets both."""
    imports, converts = [], []
    for number in range(ROUNDS):
        target = file.with_name("target.qcow2")
        converts.append(timed(lambda at=target: convert(file, at)))
        target.unlink()
        name = f"{what.replace(' ', '-')}-{number}"
        imports.append(timed(lambda at=name: import_one(one, at, url)))
        one.call("DELETE", f"{VOLUMES}/{name}")
    figures = [
        Figure(f"qemu-img convert of {what}, durable", converts, "s"),
        Figure(f"import of {what}", imports, "s"),
    ]
    speed = figures[0].median / figures[1].median
    return [*figures, Figure(f"speed of the import of {what}", [speed], "of convert", "≥ 0.9")]


def timed(work: Callable[[], None]) -> float:
    os.sync()
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def import_one(one: Cluster, name: str, url: str) -> None:
    document = {
        "metadata": {"name": name},
        "spec": {
            "source": {"http": {"url": url}},
            "storage": {"resources": {"requests": {"storage": "1Gi"}}},
        },
    }
    one.call("POST", VOLUMES, document)
    connection = one.connect()  # a watch, as asking again and again would take time from the import
    selected = f"{VOLUMES}?watch=true&timeoutSeconds=300&fieldSelector=metadata.name%3D{name}"
    connection.request("GET", selected, headers=one.headers)
    answer = connection.getresponse()
    while line := answer.readline():
        if json.loads(line)["object"].get("status", {}).get("phase") == "Succeeded":
            connection.close()
            return
    raise RuntimeError(f"{name} was not imported within 300 s")


def serve(file: Path) -> tuple[multiprocessing.Process, str]:
    """A web server that costs next to nothing: the kernel sends the file."""
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/{file.name}"
    process = multiprocessing.Process(target=answer, args=(listening, file), daemon=True)
    process.start()
    listening.close()
    return process, url


def answer(listening: socket.socket, file: Path) -> None:
    while True:
        connection, _ = listening.accept()
        with connection, file.open("rb") as content:
            while b"\r\n\r\n" not in connection.recv(65536):
                pass
            size = file.stat().st_size
            head = f'HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: "{file.name}"\r\n\r\n'
            connection.sendall(head.encode())
            connection.sendfile(content)
