"""The day of a user in the browser: create, watch, scale, delete, heal, roll out."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.cluster import until
from tests.e2e.dashboard.conftest import ROOT, go

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)


def card(page: Page, name: str):
    """Return the part of the fleet that is about a set."""
    return page.get_by_role("listitem").filter(has=page.get_by_role("link", name=name, exact=True))


def members(page: Page, name: str, state: str = "ready"):
    return card(page, name).get_by_role("link", name=re.compile(f", {state}$"))


def test_the_day_of_a_set(user, open_page):
    page = open_page("fleet")
    expect(page.get_by_role("heading", name="No machines yet")).to_be_visible()

    page.keyboard.press("c")
    page.get_by_label("Name", exact=True).fill("herd")
    page.get_by_label("Image").fill("example.test/disk:1")
    expect(page.get_by_role("textbox", name="YAML", exact=True)).to_have_value(
        re.compile("name: herd")
    )
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("The server accepts it")).to_be_visible()
    assert user.items("vmirs") == []
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("heading", name="herd")).to_be_visible()
    expect(page.get_by_role("row").filter(has_text="ready")).to_have_count(3)

    go(page, "fleet")
    expect(members(page, "herd")).to_have_count(3)
    # The second click comes before the first one is drawn.
    more = page.get_by_role("button", name="Scale herd: one more", exact=True)
    more.evaluate("button => { button.click(); button.click(); }")
    expect(members(page, "herd")).to_have_count(5)
    expect(page.get_by_label("Command")).to_have_text(
        "kubectl scale vmirs herd --replicas=5 -n default"
    )
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(members(page, "herd")).to_have_count(3)
    assert user.get("vmirs", "herd")["spec"]["replicas"] == 3

    victim = members(page, "herd").first
    name = (victim.get_attribute("aria-label") or "").split(",")[0]
    victim.click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("creates another one in its place")
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="There is no machine")).to_be_visible()
    go(page, "fleet")
    expect(members(page, "herd")).to_have_count(3)
    assert name not in [each["metadata"]["name"] for each in user.items("vmi")]

    go(page, "activity")
    page.get_by_label("Filter activity").fill("herd Created")
    expect(page.get_by_role("row").filter(has_text="by the dashboard")).not_to_have_count(0)

    go(page, "fleet")
    card(page, "herd").get_by_role("button", name="Delete", exact=True).click()
    goes = page.get_by_role("dialog").get_by_label("Machines that go").get_by_role("listitem")
    expect(goes).to_have_count(3)
    page.get_by_role("button", name="Cancel", exact=True).click()
    assert user.get("vmirs", "herd")["metadata"].get("deletionTimestamp") is None
    card(page, "herd").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="No machines yet")).to_be_visible()


def test_a_pool_is_rolled_out_by_an_edit_of_its_yaml(user, open_page):
    page = open_page("create")
    page.get_by_role("radio", name="Pool").check()
    page.get_by_label("Name", exact=True).fill("drove")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("row").filter(has_text="ready")).to_have_count(3)
    page.get_by_role("tab", name="YAML").click()
    text = page.get_by_role("textbox", name="YAML", exact=True)
    expect(text).to_have_value(re.compile("guest: 128Mi"))

    text.fill(text.input_value().replace("guest: 128Mi", "guest: much"))
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("button", name=re.compile("Line \\d+"))).to_be_visible()
    expect(text).to_have_attribute("aria-invalid", "true")

    text.fill(text.input_value().replace("guest: much", "guest: 192Mi"))
    page.get_by_role("button", name="Save", exact=True).click()

    def has_new_memory():
        specs = [each["spec"]["domain"]["memory"]["guest"] for each in user.items("vmi")]
        return specs == ["192Mi"] * 3

    until("the machines have the memory of the new template", has_new_memory)
    page.get_by_role("tab", name="Machines").click()
    expect(page.get_by_role("row").filter(has_text="ready")).to_have_count(3)
    user.kubectl("delete", "vmpool", "drove")
    expect(page.get_by_role("heading", name="There is no drove")).to_be_visible()


def test_a_machine_that_cannot_start_says_why_and_what_to_do(user, open_page):
    page = open_page("fleet")
    user.kubectl("create", "-f", "-", input=GREEDY)
    wrong = page.get_by_label("What is wrong")
    expect(wrong).to_contain_text("it requests 8 PiB of memory, and the largest node has")
    expect(wrong).to_contain_text("Request less memory")
    wrong.get_by_role("link").click()
    expect(page.get_by_role("heading", name="greedy", exact=True)).to_be_visible()
    expect(page.get_by_label("What is wrong")).to_contain_text("Insufficient memory")
    user.kubectl("delete", "vmi", "greedy")
    go(page, "fleet")
    expect(page.get_by_text("Nothing is wrong.")).to_be_visible()


GREEDY = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: greedy}
spec:
  domain: {devices: {}, resources: {requests: {memory: 8Pi}}}
"""


def test_the_keys_lead_through_the_page(open_page):
    page = open_page("fleet")
    page.keyboard.type("ga")
    expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Filter activity")).to_be_focused()
    page.keyboard.type("gf")
    expect(page.get_by_role("heading", name="Activity")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.type("gf")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()


def test_a_machine_is_claimed_from_a_warm_pool(user, open_page):
    for example in ("testreplicaset", "warm-pool"):
        user.kubectl("create", "-f", str(ROOT / f"examples/{example}.yaml"))
    page = open_page("fleet")
    expect(card(page, "spares")).to_contain_text("2 of 2 ready")
    expect(card(page, "spares").get_by_role("button", name="Pause")).to_have_count(0)
    card(page, "spares").get_by_role("button", name="Claim a machine").click()
    expect(page.get_by_role("region", name="Claims")).to_contain_text("of spares")
    until("the claim is bound", lambda: "True" in user.kubectl("get", "vmclaim", "--no-headers"))
    (claimed,) = [each["status"]["vmi"]["name"] for each in user.items("vmclaim")]
    claims = page.get_by_role("region", name="Claims").get_by_role("listitem")
    expect(claims.get_by_role("link", name=claimed)).to_be_visible()
    claims.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(f"Its machine {claimed} goes with it")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(claims).to_have_count(0)
    until(
        "its machine is gone",
        lambda: claimed not in [each["metadata"]["name"] for each in user.items("vmi")],
    )
