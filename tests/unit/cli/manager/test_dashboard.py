"""``corral dashboard``: what it opens, prints and reports, against a server that listens."""

import hashlib
import ssl
import stat
import webbrowser
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from click.testing import CliRunner

from corral import pki
from corral.cli.errors import Problem
from corral.cli.main import run
from corral.cli.manager import dashboard
from corral.cli.manager.dashboard import Door, has_screen, lines
from corral.cli.session import Session
from corral.client.kubeconfig import Kubeconfig
from corral.server.app import ApiServer
from corral.server.asgi import App
from corral.server.authn.authenticator import ADMINISTRATOR, Authenticator
from corral.server.dashboard import page
from corral.server.transport.listener import listening, tls_context
from corral.store import Store

DOOR = Door("https://127.0.0.1:6443/dashboard/", "c0de", "AB:CD")


@pytest.fixture
def built(tmp_path, monkeypatch):
    """A built page, in place of this checkout's."""
    monkeypatch.setattr(page.Page.__init__, "__defaults__", (tmp_path / "page",))
    (tmp_path / "page").mkdir()
    (tmp_path / "page/index.html").write_text("<!doctype html>")
    return tmp_path / "page"


@asynccontextmanager
async def served(tmp_path, token=""):
    identity = pki.ensure(tmp_path / "pki")
    store = Store.in_memory()
    server = ApiServer(store, authenticator=Authenticator({identity.token: ADMINISTRATOR}))
    tls = tls_context(identity.certificate, identity.key)
    async with listening(App(server), "127.0.0.1", 0, tls) as (_, port):
        config = Kubeconfig(
            server=f"https://127.0.0.1:{port}",
            authority=identity.authority.read_text(),
            token=token or identity.token,
        )
        yield Session(config=config, namespace="default", path=tmp_path), server, identity
    await store.close()


async def test_the_code_of_the_address_is_good_once(tmp_path, built):
    async with served(tmp_path) as (session, server, identity):
        door = await dashboard._door(session)
        assert door.url == f"{session.config.server}/dashboard/#code={door.code}"
        certificate = ssl.PEM_cert_to_DER_cert(identity.certificate.read_text())
        assert door.fingerprint == hashlib.sha256(certificate).digest().hex(":").upper()
        grants = server.authenticator.browser_sessions
        assert grants.redeem(door.code)[1].user == ADMINISTRATOR.name
        assert grants.redeem(door.code) is None


async def test_a_server_without_the_page_says_how_to_build_it(tmp_path, built):
    (built / "index.html").unlink()
    async with served(tmp_path) as (session, *_):
        with pytest.raises(Problem, match="has no dashboard") as missing:
            await dashboard._door(session)
    assert "tools/page_build.py" in missing.value.hint


async def test_a_wrong_token_is_reported(tmp_path, built):
    async with served(tmp_path, token="wrong") as (session, *_):
        with pytest.raises(Problem) as refused, session.api_errors("no"):
            await dashboard._door(session)
    assert "is not valid" in refused.value.hint


def test_another_kubernetes_is_served_by_kubectl_proxy(built, monkeypatch):
    monkeypatch.setattr(dashboard, "_PAGE", built)
    said = dashboard._missing("404 page not found\n")
    assert f"kubectl proxy --www={built} --www-prefix=/dashboard/" in said.hint


def test_a_dead_server_is_reported_with_what_starts_it(nobody_home, capsys):
    assert run(["dashboard"]) == 1
    said = capsys.readouterr().err
    assert "the dashboard cannot be opened: the API server at https://127.0.0.1:1" in said
    assert "corral up --detach starts it" in said


def test_the_code_is_shown_only_where_somebody_has_to_open_the_address():
    opened, by_hand = lines(DOOR, opened=True), lines(DOOR, opened=False)
    assert "c0de" not in "\n".join(opened)
    assert f"  {DOOR.url}" in by_hand
    assert any(line.strip().startswith("ssh -L 6443:127.0.0.1:6443 ") for line in by_hand)
    assert "  AB:CD" in opened
    assert "  AB:CD" in by_hand


def test_an_authority_that_browsers_know_needs_no_fingerprint():
    assert lines(DOOR._replace(fingerprint=""), opened=True) == [
        "https://127.0.0.1:6443/dashboard/ opens in your browser, signed in.",
        "If it shows no page: corral dashboard --no-browser prints the address to open by hand.",
    ]


@pytest.fixture
def opened(monkeypatch):
    """The addresses that the browser was told."""
    addresses = []

    async def door(_session):
        return DOOR

    monkeypatch.setattr(dashboard, "_door", door)
    monkeypatch.setattr(webbrowser, "open", lambda url: not addresses.append(url))
    return addresses


def typed(*arguments, **environment):
    return CliRunner(env=environment).invoke(dashboard.dashboard, arguments).output


def test_the_browser_is_opened_where_there_is_a_screen(nobody_home, opened, tmp_path, monkeypatch):
    for each in dashboard._SCREENS:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert "opens in your browser" in typed(DISPLAY=":0")
    assert len(opened) == 1
    assert DOOR.url in typed()
    assert DOOR.url in typed("--no-browser", DISPLAY=":0")
    assert typed("--print-url", DISPLAY=":0") == f"{DOOR.url}\n"
    assert len(opened) == 1


def test_other_users_do_not_see_the_code_among_the_arguments_of_the_browser(
    nobody_home, opened, tmp_path
):
    typed(DISPLAY=":0", XDG_RUNTIME_DIR=str(tmp_path))
    assert DOOR.code not in opened[0]
    file = Path(url2pathname(urlsplit(opened[0]).path))
    assert f'content="0; url={DOOR.url}"' in file.read_text()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_an_unwritable_file_for_the_browser_is_reported(nobody_home, opened, tmp_path):
    (tmp_path / "corral").write_text("")
    with pytest.raises(Problem, match=r"dashboard\.html cannot be written") as refused:
        CliRunner(env={"DISPLAY": ":0", "XDG_RUNTIME_DIR": str(tmp_path)}).invoke(
            dashboard.dashboard, (), catch_exceptions=False
        )
    assert "corral dashboard --no-browser" in refused.value.hint
    assert not opened


def test_a_browser_in_a_terminal_is_not_used():
    assert not has_screen({"TERM": "xterm"})
    assert has_screen({"WAYLAND_DISPLAY": "wayland-0"})
