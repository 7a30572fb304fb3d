"""Options of ``corral kubeconfig``, checked before any request."""

from datetime import timedelta

import pytest

from corral.cli.main import run
from corral.cli.manager.users import UserGrant


@pytest.fixture
def here(tmp_path):
    """A data directory in which corral has run; its server does not answer."""
    (tmp_path / "kubeconfig").write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\nusers: [{name: u}]\n"
    )
    return tmp_path


def corral(here, *arguments):
    return run(["kubeconfig", "--data-dir", str(here), *arguments])


def test_without_options_it_prints_the_path(here, capsys):
    assert corral(here) == 0
    assert capsys.readouterr().out == f"{here / 'kubeconfig'}\n"


def test_ca_prints_the_path_of_the_ca_certificate(here, capsys):
    assert corral(here, "--ca") == 0
    assert capsys.readouterr().out == f"{here / 'pki' / 'ca.crt'}\n"


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--ca", "--user", "ben"], "--ca prints a path, and does nothing else"),
        (["--ca", "--list"], "does nothing else"),
        (["--ca", "--role", "view"], "--role is about a further user"),
        (["--role", "view"], "--role is about a further user, but none is named"),
        (["--group", "lab"], "--group is about a further user"),
        (["--all-namespaces"], "--all-namespaces is about a further user"),
        (["--output", "file"], "--output is about a further user"),
        (["--revoke"], "--revoke is about a further user"),
        (["--user", "ben", "--role", "edit"], "where may ben edit?"),
        (["--user", "ben", "--all-namespaces"], "there is none"),
        (["--user", "ben", "--revoke", "--role", "view"], "takes all roles"),
        (["--user", "ben", "--list"], "--list lists all users"),
        (["--user", "ben", "-o", "/nonexistent/x"], "there is no directory /nonexistent"),
    ],
)
def test_contradictory_or_missing_options_are_rejected(here, capsys, arguments, fault):
    assert corral(here, *arguments) == 1
    assert fault in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--user", ""],
        ["--user", "system:masters"],
        ["--user", "a/b"],
        ["--user", "-a"],
        ["--user", "a" * 65],
        ["--user", "\N{LATIN SMALL LETTER U WITH DIAERESIS}"],
        ["--user", "a", "--group", "system:masters"],
        *(
            ["--user", "a", "--expires", time]
            for time in ("", "d", "0d", "366d", "1w", "-1d", "1e9d")
        ),
    ],
)
def test_invalid_names_and_durations_are_rejected(here, capsys, arguments):
    assert corral(here, *arguments) == 2
    assert "Invalid value for" in capsys.readouterr().err


def test_an_unreachable_server_is_an_error(here, capsys):
    assert corral(here, "--user", "ben", "--role", "view", "-n", "lab") == 1
    output = capsys.readouterr()
    assert "does not answer" in output.err
    assert not output.out


def test_a_role_is_bound_in_one_namespace_or_in_all():
    request = UserGrant(user="ben", role="edit", namespace="lab", lifetime=timedelta(days=1))
    assert request.binding()["metadata"]["namespace"] == "lab"
    everywhere = UserGrant(
        user="ben", role="edit", namespace="lab", everywhere=True, lifetime=timedelta(days=1)
    )
    assert "namespace" not in everywhere.binding()["metadata"]
    assert everywhere.binding()["subjects"] == request.binding()["subjects"]
