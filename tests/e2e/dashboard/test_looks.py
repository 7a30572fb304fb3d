"""Every view in both themes and on a phone: without violations of axe, and as a picture.

``CORRAL_SCREENSHOTS=docs/images`` writes the pictures of the README and the guide there.
"""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.cluster import until
from tests.conformance.api import KUBEVIRT
from tests.e2e.dashboard.conftest import ROOT, go, hollow, violations

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)
SETS = f"{KUBEVIRT}/namespaces/default/virtualmachineinstancereplicasets"
VIEWS = {
    "fleet": "fleet",
    "machines": "machines",
    "machine": "machine/default/{}",
    "set": "set/sets/default/testreplicaset",
    "create": "create",
    "activity": "activity",
    "nodes": "nodes",
    "images": "images",
}
SHOWN = ("fleet", "machine", "create")
"""The views of which the documents have pictures."""
MAX_PICTURE_BYTES = 150_000


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """A fleet: a set, a pool, and a machine that cannot start."""
    with hollow(tmp_path_factory.mktemp("corral"), "--nodes", "2") as user:
        user.kubectl("apply", "-f", str(ROOT / "examples/testreplicaset.yaml"))
        user.kubectl("scale", "vmirs", "testreplicaset", "--replicas=24")
        user.kubectl("apply", "-f", str(ROOT / "examples/vm-pool-cirros.yaml"))
        until("the set is ready", lambda: ready(user) == 24)
        yield user


def ready(user):
    return user.get("vmirs", "testreplicaset").get("status", {}).get("readyReplicas")


@pytest.fixture
def machine(user):
    names = [each["metadata"]["name"] for each in user.items("vmi")]
    return min(each for each in names if "pool" not in each)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_view_is_for_everybody(machine, open_page, theme, tmp_path):
    page = open_page()
    page.emulate_media(color_scheme=theme)
    pictures = Path(os.environ.get("CORRAL_SCREENSHOTS", tmp_path))
    found = []
    for name, view in VIEWS.items():
        go(page, view.format(machine))
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        found += [f"{name}: {each}" for each in violations(page)]
        if name in SHOWN:
            picture = page.screenshot(path=pictures / f"dashboard-{name}-{theme}.png")
            assert len(picture) < MAX_PICTURE_BYTES
    assert not found


def test_nothing_sticks_out_on_a_phone(machine, open_page):
    page = open_page()
    page.set_viewport_size({"width": 390, "height": 844})
    for name, view in VIEWS.items():
        go(page, view.format(machine))
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        width = page.evaluate("() => document.documentElement.scrollWidth")
        assert width <= 390, f"{name} is {width} pixels wide"
