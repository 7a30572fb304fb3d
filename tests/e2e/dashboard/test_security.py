"""Names, annotations, events, field managers and console bytes that try to be markup."""

import json
import re

import pytest
from playwright.sync_api import expect
from tests.cluster import until
from tests.conformance.api import KUBEVIRT
from tests.e2e.dashboard.conftest import ROOT, go

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)
ATTACK = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
LINK = "javascript:document.title='taken'"
MACHINES = f"{KUBEVIRT}/namespaces/default/virtualmachineinstances"
VIEWS = (
    "fleet",
    "machines",
    "machine/default/{}",
    "set/sets/default/testreplicaset",
    "activity",
    "nodes",
    "images",
    "create",
)


@pytest.fixture(scope="module")
def machine(user):
    """A machine whose every free text is an attack."""
    user.kubectl("apply", "-f", str(ROOT / "examples/testreplicaset.yaml"))
    path = f"{KUBEVIRT}/namespaces/default/virtualmachineinstancereplicasets/testreplicaset"
    until(
        "its machines run",
        lambda: user.one.call("GET", path).get("status", {}).get("readyReplicas"),
    )
    found = user.items("vmi")[0]
    name, uid = found["metadata"]["name"], found["metadata"]["uid"]
    for target in (path, f"{MACHINES}/{name}"):
        user.one.call(
            "PATCH",
            f"{target}?fieldManager={'%3Cimg%20src=x%20onerror=alert(1)%3E'}",
            {"metadata": {"annotations": {"note": ATTACK, "link": LINK}}},
            "application/merge-patch+json",
        )
    user.one.call(
        "POST",
        "/api/v1/namespaces/default/events",
        {
            "metadata": {"generateName": "attack-"},
            "involvedObject": {
                "apiVersion": "kubevirt.io/v1",
                "kind": "VirtualMachineInstance",
                "namespace": "default",
                "name": name,
                "uid": uid,
            },
            "type": "Warning",
            "reason": ATTACK[:100],
            "message": ATTACK,
            "source": {"component": ATTACK[:100]},
            "firstTimestamp": "2030-01-01T00:00:00Z",
            "lastTimestamp": "2030-01-01T00:00:00Z",
            "count": 1,
        },
    )
    node = user.items("nodes")[0]["metadata"]["name"]
    user.one.call(
        "PATCH",
        f"/api/v1/nodes/{node}",
        {"metadata": {"annotations": {"note": ATTACK}}},
        "application/merge-patch+json",
    )
    return name


def test_hostile_text_is_text_in_every_view(machine, open_page):
    page = open_page()
    title = page.title()
    for view in VIEWS:
        go(page, view.format(machine))
        expect(page.get_by_role("main").get_by_role("heading").first).to_be_visible()
        for tab in page.get_by_role("tab").all():
            tab.click()
        assert page.locator("img[src=x]").count() == 0, view
        assert page.locator(f'a[href^="{LINK[:11]}"]').count() == 0, view
    go(page, "activity")
    expect(page.get_by_role("main")).to_contain_text("<img src=x onerror")
    assert page.title() == title or "taken" not in page.title()


def test_console_bytes_stay_in_the_console(machine, open_page):
    """The simulated guest echoes what is typed: markup, a title, a link, and a clipboard."""
    page = open_page(f"machine/default/{machine}")
    page.get_by_role("tab", name="Console").click()
    expect(page.get_by_role("main")).to_contain_text("hollow login:")
    typed(
        page,
        f"{ATTACK}\x1b]0;taken\x07\x1b]8;;{LINK}\x07click\x1b]8;;\x07\x1b]52;c;dGFrZW4=\x07done.",
    )
    expect(page.get_by_role("main")).to_contain_text("done.")
    assert page.locator("img[src=x]").count() == 0
    page.get_by_text("click").first.click(force=True)  # below the layer that takes clicks
    assert "taken" not in page.title()
    assert page.url.endswith(f"/machine/default/{machine}/console")


def typed(page, text):
    """Type into a terminal, with the keys of control characters."""
    keys = {"\x1b": "Escape", "\x07": "Control+g"}
    for part in re.split("([\x1b\x07])", text):
        if part in keys:
            page.keyboard.press(keys[part])
        else:
            page.keyboard.type(part)


def test_inline_scripts_and_styles_are_refused(open_page, faults):
    page = open_page()
    blocked = page.evaluate(
        """() => new Promise((resolve) => {
            const seen = [];
            document.addEventListener("securitypolicyviolation", (each) => {
                seen.push(each.effectiveDirective);
                if (seen.length === 3) resolve(seen);
            });
            const script = document.createElement("script");
            script.textContent = "document.title = 'taken'";
            document.body.append(script);
            const style = document.createElement("style");
            style.textContent = "body { display: none }";
            document.body.append(style);
            const image = document.createElement("img");
            image.src = "https://127.0.0.2/";
            document.body.append(image);
        })"""
    )
    assert set(blocked) == {"script-src-elem", "style-src-elem", "img-src"}, json.dumps(blocked)
    assert "taken" not in page.title()
    faults.clear()


def test_a_text_of_very_many_lines_has_no_element_for_each(user, machine, open_page):
    lines = {"metadata": {"annotations": {"long": "\n" * 20_000}}}
    patch = "application/merge-patch+json"
    user.one.call("PATCH", f"{MACHINES}/{machine}", lines, patch)
    page = open_page(f"machine/default/{machine}/yaml")
    text = page.get_by_role("textbox", name="YAML", exact=True)
    expect(text).to_have_value(re.compile("long: "))
    assert page.locator(".gutter *").count() == 0
    user.one.call(
        "PATCH", f"{MACHINES}/{machine}", {"metadata": {"annotations": {"long": None}}}, patch
    )
