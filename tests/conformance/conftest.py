"""One manager with simulated machines for the whole suite, and a fresh namespace for each test."""

import functools
import gc
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.cluster import EXAMPLES, KUBECTL, Outside, outside, until
from tests.conformance.api import Api
from tests.conformance.manifests import core, replica_set, sets
from tests.hosts import is_ready

OLD_KUBECTL = Path(__file__).parents[2] / ".venv/kubectl-old/usr/bin"
KUBECTL_PATH = "CORRAL_KUBECTL_PATH"
"""Directories with more kubectls to try, as in $PATH."""

OFTEN = {"changing", "recorded", "user-guide"}
"""The sessions that each landing tries with every kubectl; others differ less by kubectl."""

_numbers = itertools.count(1)


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Where these tests are not wanted, they are not even imported: the clients take seconds."""
    return "not conformance" in config.option.markexpr or None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """What needs a shell is done with each kubectl that there is, or that is new enough."""
    if "shell" in metafunc.fixturenames:
        since = metafunc.definition.get_closest_marker("since")
        oldest = int(since.args[0].partition(".")[2]) if since is not None else 0
        known = sorted(kubectl_programs())
        versions = [each for each in known if int(each.partition(".")[2]) >= oldest]
        metafunc.parametrize("shell", versions, ids="kubectl-{}".format, indirect=True)


@pytest.hookimpl(tryfirst=True)  # before those with markers are chosen
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try other kubectls than ours, session by session, only now and then."""
    for item in items:
        parameters = getattr(item, "callspec", None) and item.callspec.params
        if not parameters or not {"session", "shell"} <= parameters.keys():
            continue
        is_ours = kubectl_programs()[parameters["shell"]] == KUBECTL
        if not is_ours and parameters["session"].stem not in OFTEN:
            item.add_marker("periodic")


@functools.cache
def kubectl_programs() -> dict[str, str]:
    """Ours, the oldest, which ``./dev`` brings, and those in $CORRAL_KUBECTL_PATH, by version.

    Not those of this machine: what is tried, and how long it takes, would depend on it.
    """
    folders = [*filter(None, os.environ.get(KUBECTL_PATH, "").split(os.pathsep)), str(OLD_KUBECTL)]
    found = [shutil.which("kubectl", path=folder) for folder in folders]
    others = {str(Path(program).resolve()): program for program in found if program}
    return {kubectl_version(program): program for program in [*others.values(), KUBECTL]}


def kubectl_version(program: str) -> str:
    said = subprocess.check_output([program, "version", "--client", "-o", "json"], text=True)
    version = json.loads(said)["clientVersion"]
    return f"{version['major']}.{version['minor']}".rstrip("+")


@pytest.fixture(scope="session", autouse=True)
def temporary(tmp_path_factory) -> Iterator[None]:
    """Clients leave caches and certificates where temporary files are: among those of the tests."""
    directory = str(tmp_path_factory.mktemp("temporary"))
    with pytest.MonkeyPatch.context() as changes:
        changes.setenv("TMPDIR", directory)
        changes.setattr(tempfile, "tempdir", directory)
        yield


@pytest.fixture(scope="session")
def user(tmp_path_factory) -> Iterator[Outside]:
    directory = tmp_path_factory.mktemp("corral")
    with outside("--machine", "hollow", directory=directory) as user:
        until("its node and its KubeVirt are there", lambda: is_complete(user))
        yield user
    log = (directory / "bench.log").read_text()
    failures = [line for line in log.splitlines() if '"level": "error"' in line]
    assert not failures, "the manager itself failed at something:\n" + "\n".join(failures[:5])
    assert "Traceback" not in log, log[log.index("Traceback") :][:3000]


def is_complete(user: Outside) -> bool:
    """Return whether there is what loops and nodes make soon after the server is ready."""
    return any(map(is_ready, user.items("nodes"))) and bool(
        user.items("kubevirts", "-n", "kubevirt")
    )


@pytest.fixture(scope="session")
def api(user) -> Iterator[Api]:
    """The server, with machines that soon have run for a while: what they use is known then."""
    with Api(user.one.directory / "kubeconfig") as api:
        api.create(core("namespaces"), {"metadata": {"name": "measured"}})
        api.create(sets("measured"), replica_set("old", 3))
        yield api


@pytest.fixture
def namespace(api) -> Iterator[str]:
    """A namespace of the test's own, emptied when the test is over."""
    name = f"test-{next(_numbers)}"
    api.create("/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    api.delete(f"/api/v1/namespaces/{name}")


@pytest.fixture
def leaves_sockets() -> Iterator[None]:
    """For clients that leave sockets to the garbage collector: it comes before the next test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def shell(request, user, namespace, tmp_path, tmp_path_factory) -> dict[str, str]:
    """The environment of a user who has this kubectl, and is at home in the test's namespace."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin/kubectl").symlink_to(kubectl_programs()[request.param])
    wrapper = home / "bin/corral"
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-m", "corral"])} "$@"\n')
    wrapper.chmod(0o755)
    temporary = home / "tmp"
    temporary.mkdir()
    config = home / "kubeconfig"
    settings = yaml.safe_load((user.one.directory / "kubeconfig").read_text())
    settings["contexts"][0]["context"]["namespace"] = namespace
    config.write_text(yaml.safe_dump(settings))
    return {
        "PATH": f"{home / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "TMPDIR": str(temporary),
        "KUBECONFIG": str(config),
        "KUBECTL_VERSION": request.param,
        "KUBECACHEDIR": str(tmp_path_factory.getbasetemp() / f"cache-{request.param}"),
        "GOGC": "off",  # none lives long enough to collect garbage: it costs a quarter of the time
        "LC_ALL": "C.UTF-8",
        "NAMESPACE": namespace,
        "CORRAL_DATA_DIR": str(user.one.directory),
        "EXAMPLES": str(EXAMPLES),
    }
