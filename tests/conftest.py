"""Settings of all tests, and the page about clients.

That is made, or compared, at the end of a run.
"""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from tests import client_table
from tests.client_table import ClientTables

from corral import python_gc

PAGE = Path(__file__).parent.parent / "docs" / "clients.md"

# How long an example takes is no matter of right or wrong: hosts are slow, and have neighbours.
# A landing tries the same examples each time; who runs the tests by hand looks for new ones.
settings.register_profile(
    "patient",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("patient")
if "CI" in os.environ:
    # Hypothesis tries constants of the imported modules, too: which these are is a matter of order.
    providers._get_local_constants = providers.Constants
if len(tempfile.gettempdir()) > len("/var/tmp"):
    # A socket's address takes a path of 108 bytes, of which pytest's own directories need 90.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/tmp")
for name in list(os.environ):  # the settings of whoever runs the tests are not theirs
    if name.startswith(("CORRAL_CONTEXT", "CORRAL_DATA_DIR", "CORRAL_UP_", "KUBECONFIG")):
        del os.environ[name]
os.environ["COLUMNS"] = "80"
if "http_proxy" in map(str.lower, os.environ):  # which does not reach servers of the tests
    os.environ["no_proxy"] = f"127.0.0.1,localhost,{os.environ.get('no_proxy', '')}"


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "write docs/clients.md from what this run sees"
    parser.addoption("--write-clients", action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage as a manager does: else it takes a quarter of the collection of tests."""
    python_gc.raise_threshold()
    if not hasattr(config, "workerinput"):  # workers send their reports to the one who sums up
        config.pluginmanager.register(Clients(write=config.option.write_clients), "clients")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Attach the cells of the table of clients to the reports of tests."""
    for item in items:
        item.user_properties.extend(("client", cell) for cell in _client_cells(item))


def pytest_collection_finish() -> None:
    """Exempt modules and tests from garbage collections: none is garbage before the end."""
    python_gc.freeze()


def _client_cells(item: pytest.Item) -> list[tuple[str, str, str]]:
    callspec = getattr(item, "callspec", None)
    if callspec is not None and {"session", "shell"} <= callspec.params.keys():
        return [client_table.of_session(callspec.params["session"], callspec.params["shell"])]
    client = item.get_closest_marker("client")
    if client is None:
        return []
    deeds = item.iter_markers("does")
    return [client_table.of_client(*client.args, *deed.args, **client.kwargs) for deed in deeds]


class Clients:
    """Sums up the results of a run by client."""

    def __init__(self, *, write: bool) -> None:
        self.write = write
        self.seen = ClientTables()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            for name, cell in report.user_properties:
                if name == "client":
                    self.seen.add(cell, passed=report.passed)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.write:
            PAGE.write_text(self.seen.text())
        elif self.differences() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.write and (differences := self.differences()):
            terminalreporter.section("docs/clients.md is not what this run saw: ./dev clients")
            for line in differences:
                terminalreporter.line(line)

    def differences(self) -> list[str]:
        page = ClientTables.read(PAGE.read_text())
        return self.seen.differences(page)
