"""The dashboard in Chromium: first paint, when it is usable, memory, how soon it shows changes.

The processors also run Chromium, which draws without a GPU: a browser of its own is quicker.
"""

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from bench.cluster import Cluster, cluster, replica_set
from bench.figure import Figure, percentile
from bench.replicas import SETS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

MACHINES = (0, 100, 1000)
LOADS = 5
RATE = 50
"""Changes a second, of which every fifth is an event that the page shows."""
SECONDS = 10
SCROLLED_SECONDS = 3
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VMIS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances"
EVENTS = "/api/v1/namespaces/default/events"
MERGE = "application/merge-patch+json"
OBSERVE = """
new MutationObserver((_, observer) => {
  if (!document.querySelector('nav') || !document.querySelector('main h1, main h2')) return;
  if (document.querySelector('main [aria-busy=true]')) return;
  observer.disconnect();
  requestAnimationFrame(() => { window.usableAt = performance.now(); });
}).observe(document, {childList: true, subtree: true, attributeFilter: ['aria-busy']});
"""
"""Notes when the navigation and the first view are drawn, with the machines that there are."""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]"
SHOWN = """
window.shown = {};
new MutationObserver(() => {
  const text = document.querySelector('main').textContent;
  for (const [change] of text.matchAll(/change-\\d+-/g)) window.shown[change] ??= Date.now();
}).observe(document.querySelector('main'), {childList: true, subtree: true, characterData: true});
"""
"""Notes when each change is in the document."""
SCROLL = """
(seconds) => new Promise((resolve) => {
  const all = [...document.querySelectorAll('*')];
  const list = all.find((each) => each.scrollHeight > each.clientHeight + 200
    && /auto|scroll/.test(getComputedStyle(each).overflowY)) ?? document.scrollingElement;
  const gaps = [], begun = performance.now();
  let last = begun;
  const step = (now) => {
    gaps.push(now - last);
    last = now;
    list.scrollTop = (list.scrollTop + 40) % Math.max(1, list.scrollHeight - list.clientHeight);
    if (now - begun < seconds * 1000) requestAnimationFrame(step);
    else resolve(gaps.slice(1));
  };
  requestAnimationFrame(step);
})
"""


def measure() -> list[Figure]:
    figures = []
    with browser() as chromium:
        for machines in MACHINES:
            with cluster("--machine", "hollow") as one:
                if machines:
                    one.call("POST", SETS, replica_set("bench", machines))
                    one.settle(SETS, machines, [VMIS])
                figures += _of_fleet(one, chromium, machines)
    return figures


@contextlib.contextmanager
def browser() -> Iterator["Browser"]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only this benchmark has it

    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(FLAGS)
        )
        yield launched
        launched.close()


def _of_fleet(one: Cluster, chromium: "Browser", machines: int) -> list[Figure]:
    name = f"{machines} machines"
    time.sleep(5)  # what the machines' start has left to do
    alone = _cpu_percent(one)
    paints, usable = [], []
    for _ in range(LOADS):
        with _page(one, chromium) as page:
            paints.append(page.evaluate(f"() => {PAINT}.startTime"))
            usable.append(page.evaluate("() => window.usableAt"))
    with _page(one, chromium) as page:
        time.sleep(3)
        idle = _cpu_percent(one) - alone
        page.evaluate("() => { location.hash = '/machines' }")
        page.wait_for_timeout(1000)
        gaps = page.evaluate(SCROLL, SCROLLED_SECONDS)
        page.evaluate("() => { location.hash = '/activity' }")
        page.wait_for_timeout(1000)
        delays = _delays(one, page, machines)
        heap = _heap_mib(page)
    notes = {f"p{each}_ms": round(percentile(delays, each), 1) for each in (50, 99)}
    frames = {"frames_per_second": round(1000 * len(gaps) / sum(gaps), 1)}
    return [
        Figure(f"first paint, {name}", paints, "ms"),
        Figure(f"usable, {name}", usable, "ms", "≤ 500 ms"),
        Figure(f"change to document, p95, {RATE}/s, {name}", [percentile(delays, 95)], "ms",
               "≤ 100 ms", notes),
        Figure(f"time between frames while scrolling, p95, {name}", [percentile(gaps, 95)], "ms",
               "≤ 17 ms", frames),
        Figure(f"JavaScript heap after {SECONDS} s of changes, {name}", [heap], "MiB", "≤ 150 MiB"),
        Figure(f"manager's processor for an idle page, {name}", [idle], "% of a core", "≤ 1 %"),
    ]  # fmt: skip


@contextlib.contextmanager
def _page(one: Cluster, chromium: "Browser") -> Iterator["Page"]:
    """A page that is signed in and usable, in a browser context of its own: nothing is cached."""
    command = [sys.executable, "-m", "corral", "dashboard", "--print-url"]
    url = subprocess.check_output(command, env=one.environment(), text=True).strip()
    context = chromium.new_context(ignore_https_errors=True)
    context.add_init_script(OBSERVE)
    page = context.new_page()
    page.goto(url)
    page.wait_for_function("() => window.usableAt")
    page.wait_for_function(f"() => {PAINT}")  # reported after the frame is drawn
    yield page
    context.close()


def _cpu_percent(one: Cluster) -> float:
    spent = one.cpu_seconds()
    time.sleep(SECONDS)
    return (one.cpu_seconds() - spent) / SECONDS * 100


def _heap_mib(page: "Page") -> float:
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = session.send("Performance.getMetrics")["metrics"]
    return next(each["value"] for each in metrics if each["name"] == "JSHeapUsedSize") / (1 << 20)


def _delays(one: Cluster, page: "Page", machines: int) -> list[float]:
    """Return the milliseconds from the request of each shown change until it is in the document."""
    # The list draws only the rows that are in sight: other events would push these out of it.
    page.locator("input.search").fill("change-")
    page.evaluate(SHOWN)
    sent: dict[str, float] = {}
    changes = threading.Thread(target=_change, args=(one, machines, sent))
    changes.start()
    while changes.is_alive():
        page.wait_for_timeout(200)
    page.wait_for_timeout(2000)
    shown = page.evaluate("() => window.shown")
    missing = sent.keys() - shown.keys()
    assert not missing, f"{len(missing)} of {len(sent)} changes are not shown"
    return [shown[change] - begun * 1000 for change, begun in sent.items()]


def _change(one: Cluster, machines: int, sent: dict[str, float]) -> None:
    """Make changes at the rate: annotations of machines, and events."""
    names = [each["metadata"]["name"] for each in one.call("GET", VMIS)["items"]]
    with contextlib.closing(one.connect()) as connection:
        begun = time.perf_counter()
        for number in range(RATE * SECONDS):
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            if machines and number % 5:
                note = {"metadata": {"annotations": {"bench": str(number)}}}
                _send(one, connection, "PATCH", f"{VMIS}/{names[number % machines]}", note)
            elif not number % 5:
                change = f"change-{number}-"
                sent[change] = time.time()
                _send(one, connection, "POST", EVENTS, _event(change))


def _send(
    one: Cluster, connection: http.client.HTTPSConnection, method: str, path: str, body: object
) -> None:
    kind = MERGE if method == "PATCH" else "application/json"
    headers = {**one.headers, "Content-Type": kind}
    connection.request(method, path, json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    assert answer.status < 400, answer.status


def _event(change: str) -> dict[str, object]:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {
        "metadata": {"generateName": "bench-", "namespace": "default"},
        "involvedObject": {"kind": "VirtualMachineInstance", "namespace": "default", "name": "x"},
        "reason": "Bench",
        "message": f"{change} was made",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
    }
