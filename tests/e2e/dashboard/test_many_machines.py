"""A thousand simulated machines in the browser: bars of them all, lists of those on the screen."""

import re

import pytest
from playwright.sync_api import expect
from tests.e2e.dashboard.conftest import go, hollow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)
MANY = 1000
ON_SCREEN = 100
"""More rows than any screen shows, and far fewer than there are."""


def test_a_thousand_machines_are_a_list_of_those_on_the_screen(tmp_path, open_page):
    with hollow(tmp_path) as user:
        user.kubectl("create", "-f", "-", input=HERD)
        page = open_page("fleet", of=user)
        herd = page.get_by_role("listitem").filter(
            has=page.get_by_role("link", name="herd", exact=True)
        )
        expect(herd.get_by_role("link", name=re.compile(", ready$"))).to_have_count(MANY)
        go(page, "machines")
        expect(page.get_by_role("status").filter(has_text=f"{MANY} machines")).to_be_visible()
        table = page.get_by_role("table", name="Machines")
        assert page.get_by_role("row").count() < ON_SCREEN
        last = max(each["metadata"]["name"] for each in user.items("vmi"))
        table.evaluate("element => element.scrollTo(0, element.scrollHeight)")
        expect(page.get_by_role("link", name=last)).to_be_visible()
        page.get_by_label("Filter machines").fill(last)
        expect(page.get_by_role("row").filter(has_text=last)).to_have_count(1)
        page.get_by_role("row").get_by_role("link").click()
        page.get_by_role("tab", name="Console").click()
        page.get_by_label(f"Console of {last}").get_by_text("hollow login:").first.wait_for()


HERD = f"""
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceReplicaSet
metadata: {{name: herd}}
spec:
  replicas: {MANY}
  selector: {{matchLabels: {{app: herd}}}}
  template:
    metadata: {{labels: {{app: herd}}}}
    spec:
      domain: {{devices: {{}}, resources: {{requests: {{memory: 64M}}}}}}
"""
