"""The dashboard in a real Chromium, on a manager whose machines are simulated."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cluster import Outside, outside, until
from tests.hosts import is_ready

from corral.node.network.namespaces import Namespace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

ROOT = Path(__file__).parents[3]
AXE = ROOT / "dashboard/node_modules/axe-core/axe.min.js"
CHROMIUM = shutil.which("chromium") or "chromium"
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
WAIT_MS = 60_000
"""Until a wait for the page gives up: many times what any takes."""
EXPECTED = ("Failed to load resource", "WebSocket connection to")
"""Console errors of Chromium for errors that the server responds with, and if it is dead."""

Open = Callable[..., "Page"]


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Where these tests are not wanted, there need be no playwright."""
    return "not e2e" in config.option.markexpr or None


@pytest.fixture(scope="module", autouse=True)
def own_network() -> Iterator[None]:
    """A network namespace for the thread of the tests, and so for all that it starts.

    Interfaces that other tests make on the host would abort Chromium's requests, with
    ERR_NETWORK_CHANGED.  Without root's rights nobody makes any, nor a namespace.
    """
    if os.geteuid():
        yield
        return
    with Namespace.current() as host:
        try:
            with Namespace.unshare_thread():
                subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=120)
            yield
        finally:
            host.enter()


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A browser for one module: Playwright runs an event loop, beside which no other can run."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only these tests have it

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=list(FLAGS)
        )
        yield browser
        browser.close()


@contextmanager
def hollow(directory: Path, *options: str) -> Iterator[Outside]:
    """A manager with simulated machines whose node is ready."""
    with outside("--machine", "hollow", *options, directory=directory) as user:
        until("its node is ready", lambda: any(map(is_ready, user.items("nodes"))))
        yield user


@pytest.fixture(scope="module")
def user(tmp_path_factory) -> Iterator[Outside]:
    with hollow(tmp_path_factory.mktemp("corral")) as user:
        yield user


@pytest.fixture
def context(browser) -> Iterator["BrowserContext"]:
    """A browser of its own for each test: nothing is kept between them."""
    context = browser.new_context(
        ignore_https_errors=True, reduced_motion="reduce", viewport={"width": 1280, "height": 800}
    )
    context.set_default_timeout(WAIT_MS)
    yield context
    context.close()


@pytest.fixture
def faults(context) -> Iterator[list[str]]:
    """What the pages of a test complain about: exceptions, console errors, opened dialogs.

    Breaches of the content security policy are among them.  A test that expects some clears them.
    """
    found: list[str] = []
    context.on("weberror", lambda each: found.append(str(each.error)))
    context.on("dialog", lambda each: (found.append(f"dialog: {each.message}"), each.dismiss()))
    context.on(
        "console",
        lambda each: (
            found.append(each.text)
            if each.type == "error" and not any(part in each.text for part in EXPECTED)
            else None
        ),
    )
    yield found
    assert not found


def sign_in_url(user: Outside, *options: str) -> str:
    return user.corral("dashboard", "--print-url", *options).strip()


@pytest.fixture
def open_page(context, faults, user) -> Open:
    """Opens the page, signed in; ``view`` is one of it, ``options`` are those of the command."""

    def opened(view: str = "", *options: str, of: Outside = user) -> "Page":
        page = context.new_page()
        page.goto(sign_in_url(of, *options))
        page.get_by_role("navigation").wait_for()
        if view:
            go(page, view)
        return page

    return opened


def go(page: "Page", view: str) -> None:
    """Lead a page that is signed in to a view, as its links do."""
    page.evaluate("view => { location.hash = view }", f"/{view}")


def kubeconfig_of(user: Outside, file: Path, name: str, *options: str) -> Path:
    """Write the kubeconfig of another user."""
    user.corral("kubeconfig", "--user", name, "--output", str(file), *options)
    return file


def violations(page: "Page") -> list[str]:
    """What axe finds wrong for people with screen readers, keyboards, or weak eyes."""
    if not page.evaluate("() => 'axe' in window"):
        # Not by a <script>, which the page's policy refuses.
        page.evaluate(AXE.read_text())
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        for node in each["nodes"]
    ]


@contextmanager
def kubectl_proxy(user: Outside, *options: str) -> Iterator[str]:
    """A ``kubectl proxy`` for the block; the value is its address."""
    process = subprocess.Popen(
        [user.kubectl_program, "proxy", "--port=0", *options],
        env=os.environ | user.corral_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield f"http://{process.stdout.readline().split()[-1]}"
    finally:
        process.terminate()
        process.communicate()
