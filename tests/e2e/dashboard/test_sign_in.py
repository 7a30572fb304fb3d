"""Sign-in and sign-out, dead servers, roles, and kubectl proxy, as a browser meets them."""

import http.server
import re
import signal
import subprocess
import threading
import urllib.parse

import pytest
import yaml
from playwright.sync_api import expect
from tests.cluster import until
from tests.e2e.dashboard.conftest import (
    ROOT,
    go,
    hollow,
    kubeconfig_of,
    kubectl_proxy,
    sign_in_url,
    violations,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

expect.set_options(timeout=60_000)
PAGE = ROOT / "src/corral/server/dashboard/page"


def test_a_code_signs_in_once_and_leaves_no_trace(user, context, open_page, faults):
    url = sign_in_url(user)
    page = context.new_page()
    page.goto(url)
    expect(page.get_by_role("navigation")).to_be_visible()
    assert "code" not in page.url
    kept = page.evaluate(
        "() => [document.cookie, localStorage.length, sessionStorage.length, history.length]"
    )
    assert kept[:3] == ["", 0, 0]
    page.go_back()
    assert "code" not in page.url
    again = context.new_page()
    again.goto(url)
    expect(again.get_by_role("alert")).to_contain_text("was used before")
    code = urllib.parse.urlsplit(url).fragment.removeprefix("code=")
    logs = [*user.one.directory.glob("*.log"), *user.one.directory.glob("**/audit*")]
    written = "".join(each.read_text() for each in logs if each.is_file())
    assert "corral-session-" not in written
    assert code not in written


def test_a_token_may_be_pasted_and_sign_out_forgets_it(user, context, faults):
    page = context.new_page()
    page.goto(f"{user.one.url}/dashboard/")
    page.get_by_label("paste a bearer token").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("does not accept")
    page.get_by_label("paste a bearer token").fill(user.one.user["token"])
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("navigation")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("alert")).to_contain_text("signed out")
    page.reload()
    expect(page.get_by_label("paste a bearer token")).to_be_visible()


def test_a_kubeconfig_with_a_token_may_be_chosen(user, context, faults):
    page = context.new_page()
    page.goto(f"{user.one.url}/dashboard/")
    config = user.one.directory / "kubeconfig"
    assert "token" in yaml.safe_load(config.read_text())["users"][0]["user"]
    page.get_by_label("choose a kubeconfig").set_input_files(config)
    expect(page.get_by_role("navigation")).to_be_visible()


def test_a_session_that_ends_elsewhere_asks_to_sign_in_again(user, context, open_page):
    """Its watches are closed, and the next request is refused."""
    tokens = []
    context.on(
        "response",
        lambda each: (
            tokens.append(each.json()["token"])
            if each.url.endswith("/session") and each.request.method == "POST"
            else None
        ),
    )
    page = open_page()
    until("the token is seen", lambda: page.evaluate("1") and tokens)
    connection = user.one.connect()
    headers = {"Authorization": f"Bearer {tokens[0]}"}
    connection.request("DELETE", "/dashboard/session", headers=headers)
    assert connection.getresponse().status == 204
    connection.close()
    expect(page.get_by_role("alert")).to_contain_text("session has ended")


def test_no_other_site_may_frame_the_page(user, context, faults):
    outer = f'<!doctype html><iframe src="{user.one.url}/dashboard/" width=800 height=600></iframe>'
    with Site(outer) as address:
        page = context.new_page()
        page.goto(address)
        frame = page.frames[1]
        frame.wait_for_load_state()
        assert not frame.url.startswith(user.one.url)
    assert any("frame" in each.lower() for each in faults)
    faults.clear()


class Site:
    """A web server with one page, for the block; the value is its address."""

    def __init__(self, page: str) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(page.encode())

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> str:
        self._thread.start()
        return f"http://127.0.0.1:{self._server.server_port}/"

    def __exit__(self, *_) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.mark.parametrize("static", [False, True])
def test_the_page_works_behind_kubectl_proxy(user, context, faults, static):
    """Behind it nobody signs in.  ``static``: kubectl serves the files, too."""
    options = [f"--www={PAGE}", "--www-prefix=/dashboard/"] if static else []
    user.corral("dashboard", "--print-url")  # the server lives
    with kubectl_proxy(user, *options) as address:
        page = context.new_page()
        page.goto(f"{address}/dashboard/")
        expect(page.get_by_role("navigation")).to_be_visible()
        expect(page.get_by_role("status").first).to_contain_text("live")
        go(page, "nodes")
        expect(page.get_by_role("main")).to_contain_text(user.items("nodes")[0]["metadata"]["name"])
        page.close()


def without_groups(*groups):
    """Answers discovery as a Kubernetes does that lacks some groups."""

    def answer(route):
        response = route.fetch()
        found = response.json()
        found["groups"] = [each for each in found["groups"] if each["name"] not in groups]
        route.fulfill(response=response, json=found)

    return answer


def test_a_kubernetes_without_the_kinds_is_told_how_to_get_them(user, context, faults):
    groups = ("kubevirt.io", "pool.kubevirt.io", "corral.dev", "cdi.kubevirt.io")
    page = context.new_page()
    page.route("**/apis", without_groups(*groups))
    page.goto(sign_in_url(user))
    main = page.get_by_role("main")
    expect(main).to_contain_text("This Kubernetes has no kinds of virtual machines")
    expect(main).to_contain_text("corral install --print | kubectl apply -f -")
    expect(main).to_contain_text(user.items("nodes")[0]["metadata"]["name"])
    expect(main).not_to_contain_text("Nothing is wrong")
    expect(page.get_by_role("status").first).to_contain_text("live")
    assert not violations(page)
    go(page, "create")
    expect(main).to_contain_text("There is nothing to create on this server")


def test_the_kinds_that_another_kubevirt_lacks_are_named(user, context, faults):
    page = context.new_page()
    page.route("**/apis", without_groups("corral.dev"))
    page.goto(sign_in_url(user))
    main = page.get_by_role("main")
    expect(main).to_contain_text("does not have: warm pools, claims, checkpoints.")
    expect(main).to_contain_text("Nothing is wrong")


def test_the_page_of_a_dead_server_waits_for_its_return(tmp_path_factory, context, faults):
    """Behind kubectl proxy, whose user the new manager knows; a session would be over."""
    directory = tmp_path_factory.mktemp("restarted")
    with hollow(directory) as user, kubectl_proxy(user) as address:
        page = context.new_page()
        page.goto(f"{address}/dashboard/")
        expect(page.get_by_role("status").first).to_contain_text("live")
        user.kill_manager()
        expect(page.get_by_role("alert")).to_be_visible()
        bind = f"127.0.0.1:{user.one.port}"
        command = user.corral_command("up", "--machine", "hollow", "--bind", bind)
        with subprocess.Popen(
            command,
            env=user.corral_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as manager:
            try:
                expect(page.get_by_role("status").first).to_contain_text("live")
                expect(page.get_by_role("alert")).to_have_count(0)
                page.close()
            finally:
                manager.send_signal(signal.SIGTERM)
                manager.wait()


ROLES = {"view": False, "edit": True, "admin": True}
"""Whether the role may delete sets."""


@pytest.fixture(scope="module")
def team(user):
    """A namespace with a set."""
    user.kubectl("create", "namespace", "team")
    user.kubectl("apply", "-n", "team", "-f", str(ROOT / "examples/testreplicaset.yaml"))
    return "team"


@pytest.mark.parametrize("role", ROLES)
def test_a_role_shows_in_what_may_be_done(user, team, open_page, tmp_path, role):
    config = kubeconfig_of(
        user, tmp_path / "config", f"anna-{role}", "--role", role, "--namespace", team
    )
    page = open_page("", "--kubeconfig", str(config))
    choose_namespace(page, team)
    expect(page.get_by_role("main")).to_contain_text("testreplicaset")
    go(page, f"set/sets/{team}/testreplicaset")
    expect(page.get_by_role("heading", name="testreplicaset")).to_be_visible()
    delete = page.get_by_role("main").get_by_role("button", name=re.compile("^Delete")).first
    if ROLES[role]:
        expect(delete).to_be_enabled()
    else:
        expect(delete).to_be_disabled()


def test_rights_are_those_of_the_namespace_of_each_object(user, team, open_page, tmp_path):
    """A user may look everywhere, and edit in one namespace."""
    user.kubectl("apply", "-f", str(ROOT / "examples/testreplicaset.yaml"))
    user.kubectl("create", "clusterrolebinding", "otto-looks", "--clusterrole=view", "--user=otto")
    config = kubeconfig_of(user, tmp_path / "config", "otto", "--role", "edit", "--namespace", team)
    page = open_page("", "--kubeconfig", str(config))
    cards = page.get_by_role("listitem").filter(has=page.get_by_role("link", name="testreplicaset"))
    for namespace, is_permitted in ((team, True), ("default", False)):
        card = cards.filter(has_text=f"· {namespace} ·")
        delete = card.get_by_role("button", name=re.compile("^Delete"))
        expect(delete).to_be_enabled(enabled=is_permitted)
        if not is_permitted:
            expect(delete).to_have_accessible_name(re.compile("does not permit .* in default"))
    user.kubectl("delete", "-f", str(ROOT / "examples/testreplicaset.yaml"))


def test_the_fleet_waits_for_neither_discovery_nor_rights(user, team, context, faults):
    page = context.new_page()
    held = []

    def hold(route):
        held.append(route)

    page.route(re.compile("/apis$|selfsubjectrulesreviews$"), hold)
    page.goto(sign_in_url(user))
    expect(page.get_by_role("link", name="testreplicaset", exact=True)).to_be_visible()
    assert held
    for each in held:
        each.continue_()


def test_a_user_without_a_role_is_told_so(user, open_page, tmp_path):
    config = kubeconfig_of(user, tmp_path / "config", "nobody-in-particular")
    page = open_page("", "--kubeconfig", str(config))
    expect(page.get_by_role("main")).to_contain_text("does not permit")


def choose_namespace(page, name):
    field = page.get_by_label("Namespace").first
    if field.evaluate("each => each.tagName") == "SELECT":
        field.select_option(name)
    else:
        field.fill(name)
        field.press("Enter")
