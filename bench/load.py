"""Load on the API: wrk where a program is needed that is quicker than the server."""

import contextlib
import json
import re
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator

from bench.cluster import Cluster

SECONDS = 4


def wrk(
    one: Cluster,
    path: str,
    *,
    clients: int,
    body: object = None,
    method: str = "",
    headers: dict[str, str] | None = None,
) -> dict[str, float]:
    """Ask again and again; answers requests a second and latencies in milliseconds.

    ``%d`` in the path or the body is the number of the request.
    """
    with flood(one, path, clients=clients, body=body, method=method, headers=headers) as process:
        return read(process)


def wrk_plain(url: str, *, clients: int) -> dict[str, float]:
    """Ask whatever server for one URL, again and again."""
    command = [_program(), "--latency", "-t1", f"-c{clients}", f"-d{SECONDS}s", url]
    return read(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


def _program() -> str:
    program = shutil.which("wrk")
    if program is None:
        raise SystemExit("bench: wrk is missing: apt-get install wrk")
    return program


def read(process: subprocess.Popen[str]) -> dict[str, float]:
    """What wrk says at its end."""
    said, _ = process.communicate()
    if process.returncode or "Non-2xx" in said:
        raise RuntimeError(said)
    figures = {
        "seconds": SECONDS,
        "per_second": float(re.search(r"Requests/sec:\s+([\d.]+)", said)[1]),
    }
    for percent in (50, 99):
        number, unit = re.search(rf"\s{percent}%\s+([\d.]+)(us|ms|s)", said).groups()
        figures[f"p{percent}_ms"] = float(number) * {"us": 1e-3, "ms": 1, "s": 1e3}[unit]
    return figures


@contextlib.contextmanager
def flood(
    one: Cluster,
    path: str,
    *,
    clients: int,
    body: object = None,
    method: str = "",
    headers: dict[str, str] | None = None,
    seconds: int = SECONDS,
) -> Iterator[subprocess.Popen[str]]:
    """Let wrk work for some seconds, or until the block ends."""
    program = _program()
    text = "" if body is None else json.dumps(body)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        for name, value in {**one.headers, **(headers or {})}.items():
            script.write(f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}\n")
        script.write(f"wrk.method = {json.dumps(method or ('POST' if text else 'GET'))}\n")
        if "%d" in path + text:
            script.write(
                "local number = 0\n"
                "function request()\n"
                "  number = number + 1\n"
                f"  local path = ([==[{path}]==]):gsub('%%d', number)\n"
                f"  local body = ([==[{text}]==]):gsub('%%d', number)\n"
                "  return wrk.format(nil, path, nil, body)\n"
                "end\n"
            )
        elif text:
            script.write(f"wrk.body = [==[{text}]==]\n")
        script.flush()
        process = subprocess.Popen(
            [program, "--latency", "-t1", f"-c{clients}", f"-d{seconds}s", "-s", script.name,
             one.url + path.replace("%d", "0")],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


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
