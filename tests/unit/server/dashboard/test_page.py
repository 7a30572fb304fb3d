"""The files of the page: types, caching, encodings, and who and what is refused."""

import gzip
import os

import pytest

from corral.api.request import Request
from corral.server.dashboard.page import SECURITY_HEADERS, Page

SCRIPT = b"export const machines = [];\n" * 100


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "page/assets").mkdir(parents=True)
    (tmp_path / "page/index.html").write_text("<!doctype html>")
    (tmp_path / "page/assets/main-ABC.js").write_bytes(SCRIPT)
    (tmp_path / "page/secret.key").write_text("of no type that a page has")
    (tmp_path / "outside.txt").write_text("outside")
    return tmp_path / "page"


@pytest.fixture
def page(directory):
    found = Page(directory)
    found.answer(Request(method="GET", path="/dashboard/"))
    return found


def get(page, path, method="GET", **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return page.answer(Request(method=method, path=path, headers=named))


def test_the_index_is_asked_for_anew_and_assets_are_kept(page):
    index, asset = get(page, "/dashboard/"), get(page, "/dashboard/assets/main-ABC.js")
    assert (index.status, index.body) == (200, b"<!doctype html>")
    assert dict(index.headers)["cache-control"] == "no-cache"
    assert dict(index.headers)["content-type"] == "text/html; charset=utf-8"
    assert dict(asset.headers)["cache-control"] == "public, max-age=31536000, immutable"
    assert dict(asset.headers)["content-type"] == "text/javascript; charset=utf-8"
    assert asset.body == SCRIPT


@pytest.mark.parametrize("path", ["/dashboard/", "/dashboard/assets/main-ABC.js", "/dashboard"])
def test_every_file_has_the_headers_that_keep_others_out(page, path):
    assert set(SECURITY_HEADERS) <= set(get(page, path).headers)


def test_the_policy_allows_this_server_alone_and_nothing_inline():
    policy = dict(SECURITY_HEADERS)["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy


def test_a_client_that_accepts_gzip_gets_it(page):
    packed = get(page, "/dashboard/assets/main-ABC.js", accept_encoding="gzip, br")
    assert dict(packed.headers)["content-encoding"] == "gzip"
    assert gzip.decompress(packed.body) == SCRIPT
    plain = get(page, "/dashboard/assets/main-ABC.js", accept_encoding="br")
    assert plain.body == SCRIPT
    assert dict(plain.headers)["vary"] == "Accept-Encoding"


def test_a_file_that_the_client_has_is_not_sent_again(page):
    tag = dict(get(page, "/dashboard/").headers)["etag"]
    again = get(page, "/dashboard/", if_none_match=f'"other", {tag}')
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize(
    "name",
    [
        "../outside.txt",
        "assets/../../outside.txt",
        "//etc/passwd",
        "assets/%2e%2e/index.html",
        "assets",
        "secret.key",
        "nosuch.js",
    ],
)
def test_nothing_but_its_own_files_is_found(page, name):
    assert get(page, f"/dashboard/{name}").status == 404


def test_the_prefix_without_a_slash_leads_to_the_page(page):
    answer = get(page, "/dashboard")
    assert (answer.status, dict(answer.headers)["location"]) == (308, "dashboard/")


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/dashboard/"), ("GET", "/dashboards/"), ("GET", "/api")]
)
def test_other_requests_are_left_to_others(page, method, path):
    assert get(page, path, method) is None


def test_a_page_that_is_built_again_is_read_again(directory, page):
    (directory / "index.html").write_text("<!doctype html>new")
    os.utime(directory / "index.html", (1, 1))
    assert get(page, "/dashboard/").body == b"<!doctype html>new"


def test_an_install_without_the_page_says_how_to_build_it(tmp_path):
    answer = get(Page(tmp_path / "nosuch"), "/dashboard/")
    assert answer.status == 404
    assert b"python3 tools/page_build.py" in answer.body
