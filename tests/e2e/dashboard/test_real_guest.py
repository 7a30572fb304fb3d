"""A real guest in the browser: its start, its console, which is typed into, and its screen."""

import json
import re

import pytest
from playwright.sync_api import expect
from tests.cluster import outside, until
from tests.e2e.test_fork import MACHINE, REFERENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=120_000)


IS_PAINTED = """canvas => {
    const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return canvas.width > 300 && data.some(each => each > 0 && each < 255);
}"""
"""Colours between black and white: letters of the firmware or of the guest."""


@pytest.fixture(scope="module")
def user(demo_disk, tmp_path_factory):
    with outside("--no-network", directory=tmp_path_factory.mktemp("corral")) as user:
        user.corral("image", "import", str(demo_disk), REFERENCE)
        user.kubectl("create", "-f", "-", input=json.dumps(MACHINE))
        until("the guest is ready", lambda: user.get("vmi", "vm")["status"]["phase"] == "Running")
        yield user


def test_a_guest_is_used_from_the_browser(open_page):
    page = open_page("machine/default/vm")
    stages = page.get_by_label(re.compile("^Start")).get_by_role("listitem")
    expect(stages.filter(has_text="QEMU starts")).to_be_visible()

    page.get_by_role("tab", name="Console").click()
    console = page.get_by_label("Console of vm", exact=True)
    expect(page.get_by_text("Connected.")).to_be_visible()
    page.keyboard.press("Enter")
    expect(console).to_contain_text("login:")
    page.keyboard.type("demo\n")
    expect(console).to_contain_text("Password:")
    page.keyboard.type("demo\n")
    expect(console).to_contain_text("vm:~#")
    page.keyboard.type("echo $((6*7))mm\n")
    expect(console).to_contain_text("42mm")

    page.get_by_role("tab", name="Screen").click()
    canvas = page.get_by_label("Screen of vm").locator("canvas")
    expect(canvas).to_be_visible()
    page.wait_for_function(IS_PAINTED, arg=canvas.element_handle())

    page.get_by_role("tab", name="Log").click()
    expect(page.get_by_label("Console log of vm")).to_contain_text("login:")
    page.get_by_role("button", name="Pause", exact=True).click()
    expect(page.get_by_text("paused", exact=True).first).to_be_visible()
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
