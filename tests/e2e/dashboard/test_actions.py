"""Each action of a machine in the browser, followed to its result on the server."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.cluster import until
from tests.e2e.dashboard.conftest import go, hollow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def user(tmp_path_factory):
    """Two nodes, so that machines can migrate."""
    with hollow(tmp_path_factory.mktemp("corral"), "--nodes", "2") as user:
        yield user


@pytest.fixture
def machine(user):
    """A machine on its own, which runs."""
    user.kubectl("create", "-f", "-", input=MACHINE)
    until("it runs", lambda: user.get("vmi", "one").get("status", {}).get("phase") == "Running")
    yield "one"
    user.kubectl("delete", "vmi", "--all")


MACHINE = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: one}
spec:
  domain:
    devices: {interfaces: [{name: default, masquerade: {}}]}
    resources: {requests: {memory: 64M}}
  networks: [{name: default, pod: {}}]
"""


def click(page: Page, name: str) -> None:
    page.get_by_role("main").get_by_role("button", name=name, exact=True).click()


def confirm(page: Page, name: str) -> None:
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def state(page: Page, is_said: str) -> None:
    """Wait until the title of a machine's view says its state."""
    expect(page.get_by_role("main").locator("header .state")).to_have_text(re.compile(is_said))


def test_a_virtual_machine_is_created_and_led_through_its_life(user, open_page):
    page = open_page("create")
    page.get_by_role("radio", name="Virtual machine").check()
    page.get_by_label("Name", exact=True).fill("desk")
    page.get_by_label("Memory", exact=True).fill("much")
    click(page, "Create")
    expect(page.get_by_role("button", name=re.compile("Line \\d+"))).to_be_visible()
    assert user.items("vm") == []
    page.get_by_label("Memory", exact=True).fill("64Mi")
    click(page, "Create")
    expect(page.get_by_role("heading", name="desk", exact=True)).to_be_visible()
    state(page, "^ *ready")

    click(page, "Pause")
    state(page, "paused")
    click(page, "Unpause")
    state(page, "^ *ready")

    before = user.get("vmi", "desk")["metadata"]["uid"]
    click(page, "Restart")
    confirm(page, "Restart")
    until("its VMI is another", lambda: uid(user, "desk") not in ("", before))
    state(page, "^ *ready")

    node = user.get("vmi", "desk")["status"]["nodeName"]
    click(page, "Migrate")
    until("it is on the other node", lambda: user.get("vmi", "desk")["status"]["nodeName"] != node)
    state(page, "^ *ready")

    click(page, "Stop")
    confirm(page, "Stop")
    state(page, "stopped")
    assert uid(user, "desk") == ""
    click(page, "Start")
    state(page, "^ *ready")

    click(page, "Delete")
    confirm(page, "Cancel")
    assert "deletionTimestamp" not in user.get("vm", "desk")["metadata"]
    click(page, "Delete")
    confirm(page, "Delete")
    expect(page.get_by_role("heading", name="There is no machine desk")).to_be_visible()
    assert user.items("vm") == []


def uid(user, name):
    """Return the uid of a VMI; "" if there is none."""
    found = [each for each in user.items("vmi") if each["metadata"]["name"] == name]
    return found[0]["metadata"]["uid"] if found else ""


def test_a_checkpoint_is_made_and_forked(user, machine, open_page):
    page = open_page(f"machine/default/{machine}")
    fork = page.get_by_role("main").get_by_role("button", name=re.compile("^Fork"))
    expect(fork).to_have_accessible_name(re.compile("needs a checkpoint"))
    click(page, "Checkpoint")
    expect(fork).to_be_enabled()
    fork.click()
    page.get_by_role("link", name=re.compile("Created a fork of one: one-")).click()
    expect(page.get_by_role("heading", name=re.compile("^one-"))).to_be_visible()
    state(page, "^ *ready")
    (copy,) = [each for each in user.items("vmi") if each["metadata"]["name"] != machine]
    conditions = {each["type"]: each["status"] for each in copy["status"]["conditions"]}
    assert conditions["Forked"] == "True"
    go(page, "fleet")
    line = page.get_by_role("region", name="Checkpoints").get_by_role("listitem")
    line.get_by_role("button", name="Delete").click()
    confirm(page, "Delete")
    expect(line).to_have_count(0)
    assert user.items("vmcheckpoint") == []


def test_a_migration_that_finds_no_node_is_shown_and_cancelled(user, machine, open_page):
    here = user.get("vmi", machine)["status"]["nodeName"]
    (other,) = {each["metadata"]["name"] for each in user.items("nodes")} - {here}
    user.kubectl("cordon", other)
    page = open_page(f"machine/default/{machine}")
    migrate = page.get_by_role("main").get_by_role("button", name=re.compile("^Migrate"))
    expect(migrate).to_have_accessible_name(re.compile("No other node is ready"))
    user.kubectl("create", "-f", "-", input=MIGRATION)
    migrations = page.get_by_role("region", name="Migrations")
    expect(migrations).to_contain_text("waits for a node")
    migrations.get_by_role("button", name="Cancel migration").click()
    confirm(page, "Cancel migration")
    expect(migrations).to_have_count(0)
    assert user.items("vmim") == []
    user.kubectl("uncordon", other)
    expect(migrate).to_be_enabled()


MIGRATION = """
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstanceMigration
metadata: {name: away}
spec: {vmiName: one}
"""
