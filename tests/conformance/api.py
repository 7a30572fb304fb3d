"""HTTPS as a program speaks it that has no client library: what was sent, what came back."""

import base64
import contextlib
import json
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import yaml

PATIENCE = 120.0
"""Seconds that the loops have to do what a test waits for."""

KUBEVIRT = "/apis/kubevirt.io/v1"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIAL_LIST = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


class Api(httpx2.Client):
    """The API as the admin of a kubeconfig; certificates are checked."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        super().__init__(
            base_url=cluster["server"],
            verify=ssl.create_default_context(cadata=authority),
            headers={"Authorization": f"Bearer {user['token']}", "Accept": "application/json"},
            timeout=2 * PATIENCE,
            trust_env=False,
        )

    def get_document(self, path: str, **query: Any) -> dict[str, Any]:
        return succeeded(self.get(path, params=query))

    def items(self, path: str, **query: Any) -> list[dict[str, Any]]:
        return self.get_document(path, **query)["items"]

    def create(self, path: str, document: dict[str, Any], **query: Any) -> dict[str, Any]:
        return succeeded(self.post(path, json=document, params=query))

    def replace(self, path: str, document: dict[str, Any], **query: Any) -> dict[str, Any]:
        return succeeded(self.put(path, json=document, params=query))

    def change(self, path: str, patch: object, media: str = MERGE, **query: Any) -> dict[str, Any]:
        return succeeded(self.send_patch(path, patch, media, **query))

    def send_patch(
        self, path: str, patch: object, media: str = MERGE, **query: Any
    ) -> httpx2.Response:
        headers = {"Content-Type": media}
        return self.patch(path, content=json.dumps(patch), headers=headers, params=query)

    def remove(self, path: str, options: dict[str, Any] | None = None, **query: Any) -> dict:
        """Delete with DeleteOptions in the body."""
        return succeeded(self.send_delete(path, options, **query))

    def send_delete(
        self, path: str, options: dict[str, Any] | None = None, **query: Any
    ) -> httpx2.Response:
        return self.request("DELETE", path, json=options, params=query)

    @contextlib.contextmanager
    def watch(self, path: str, *, accept: str = "application/json", **query: Any) -> Iterator:
        """The events of a watch, decoded, one at a time."""
        headers = {"Accept": accept}
        query = {"watch": "true", "timeoutSeconds": int(PATIENCE)} | query
        with self.stream("GET", path, params=query, headers=headers) as answer:
            if answer.status_code != 200:
                answer.read()
                succeeded(answer)
            yield (json.loads(line) for line in answer.iter_lines())

    def events(self, path: str, *, accept: str = "application/json", **query: Any) -> list[dict]:
        """All events of a watch that ends by itself."""
        with self.watch(path, accept=accept, **{"timeoutSeconds": 1} | query) as events:
            return list(events)


def succeeded(answer: httpx2.Response) -> dict[str, Any]:
    assert answer.status_code < 400, f"{answer.request.url}: {answer.status_code} {answer.text}"
    return answer.json()


def refused(answer: httpx2.Response, code: int, reason: str | None) -> dict[str, Any]:
    """The Status that says no, checked for what every such Status has."""
    assert answer.status_code == code, f"{answer.status_code} {answer.text}"
    assert answer.headers["content-type"] == "application/json"
    status = answer.json()
    assert (status["kind"], status["apiVersion"], status["status"]) == ("Status", "v1", "Failure")
    assert (status["code"], status.get("reason")) == (code, reason)
    assert set(status["metadata"]) <= {"continue"}
    assert status["message"]
    return status


def until(what: str, holds: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Wait from outside until something holds; answers it."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def conditions(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in document.get("status", {}).get("conditions", [])}


def names(items: list[dict[str, Any]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]
