"""Tests of the path grammar."""

import pytest
from hypothesis import given, strategies as st

from corral.server.request.route import Route, is_valid_scope, parse, verb

WORD = st.text("abcdefgh0-", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("path", "route"),
    [
        ("/api/v1/nodes", Route("", "v1", "nodes")),
        ("/api/v1/nodes/", Route("", "v1", "nodes")),
        ("/api/v1/nodes/one", Route("", "v1", "nodes", name="one")),
        ("/api/v1/nodes/one/status", Route("", "v1", "nodes", name="one", subresource="status")),
        ("/api/v1/namespaces", Route("", "v1", "namespaces")),
        ("/api/v1/namespaces/x", Route("", "v1", "namespaces", name="x")),
        (
            "/api/v1/namespaces/x/finalize",
            Route("", "v1", "namespaces", name="x", subresource="finalize"),
        ),
        ("/api/v1/namespaces/x/pods", Route("", "v1", "pods", "x")),
        ("/apis/g/v2/namespaces/x/things/y", Route("g", "v2", "things", "x", "y")),
        ("/apis/g/v2/namespaces/x/status", Route("g", "v2", "status", "x")),
        (
            "/apis/g/v2/namespaces/x/things/y/portforward/80/tcp",
            Route("g", "v2", "things", "x", "y", "portforward/80/tcp"),
        ),
        ("/api/v1/watch/pods", Route("", "v1", "pods", watch=True)),
        ("/api/v1/watch/namespaces/x/pods/y", Route("", "v1", "pods", "x", "y", watch=True)),
        ("/api/v1/namespaces/x/status/y", Route("", "v1", "status", "x", "y")),
    ],
)
def test_paths_of_objects(path, route):
    assert parse(path) == route


@pytest.mark.parametrize(
    "path",
    ["/", "", "/api", "/apis", "/api/v1", "/apis/g/v1", "/healthz", "/api/v1//pods", "/x/y/z"],
)
def test_paths_of_other_things(path):
    assert parse(path) is None


@given(group=WORD, version=WORD, namespace=WORD, plural=WORD, name=WORD)
def test_a_built_path_can_be_parsed(group, version, namespace, plural, name):
    route = parse(f"/apis/{group}/{version}/namespaces/{namespace}/{plural}/{name}")
    assert route is not None
    assert (route.group, route.version, route.namespace) == (group, version, namespace)
    assert (route.plural, route.name) == (plural, name)


@given(st.text("/abn", max_size=30))
def test_any_path_can_be_parsed(path):
    parse(path)


def test_verbs_depend_on_collection_or_object():
    many, one = Route("", "v1", "pods", "x"), Route("", "v1", "pods", "x", "y")
    assert verb("GET", many, watch=False) == "list"
    assert verb("GET", many, watch=True) == verb("GET", one, watch=True) == "watch"
    assert verb("GET", one, watch=False) == "get"
    assert verb("DELETE", many, watch=False) == "deletecollection"
    assert verb("DELETE", one, watch=False) == "delete"
    assert verb("TRACE", one, watch=False) == ""


@pytest.mark.parametrize(
    ("route", "verb", "namespaced", "home"),
    [
        (Route("", "v1", "pods", "x"), "create", True, True),
        (Route("", "v1", "pods", "x", "y"), "get", True, True),
        (Route("", "v1", "pods"), "list", True, True),
        (Route("", "v1", "pods"), "watch", True, True),
        (Route("", "v1", "pods"), "deletecollection", True, False),
        (Route("", "v1", "pods", name="y"), "watch", True, False),
        (Route("", "v1", "nodes"), "deletecollection", False, True),
        (Route("", "v1", "nodes", "x"), "list", False, False),
    ],
)
def test_namespaced_and_cluster_scoped_paths(route, verb, namespaced, home):
    assert is_valid_scope(route, verb, namespaced=namespaced) is home
