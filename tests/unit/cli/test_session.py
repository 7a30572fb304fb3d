"""Errors of API requests as commands report them, with hints."""

from pathlib import Path

import pytest

from corral.api.errors import Details, NotFound, Unauthorized
from corral.cli.errors import Problem
from corral.cli.session import Session
from corral.cli.virtctl.target import kind_of
from corral.client.kubeconfig import Kubeconfig

SESSION = Session(config=Kubeconfig(server="https://127.0.0.1:1"), namespace="home", path=Path("/"))


@pytest.mark.parametrize(
    ("error", "expected", "hint"),
    [
        (
            NotFound("404 page not found"),
            "fetching: the API serves no such kind",
            "Is the server as new as this command? corral version shows both.",
        ),
        (
            NotFound("not there", details=Details(name="x", kind="virtualmachineinstances")),
            "fetching: not there",
            "kubectl get vmi -n home lists what is there.",
        ),
        (
            NotFound(
                "not there", details=Details(name="x", kind="virtualmachineinstancereplicasets")
            ),
            "fetching: not there",
            "kubectl get vmirs -n home lists what is there.",
        ),
        (
            NotFound("not there", details=Details(name="x", kind="virtualmachineclaims")),
            "fetching: not there",
            "kubectl get vmclaim -n home lists what is there.",
        ),
        (
            NotFound("not there", details=Details(name="x", kind="virtualmachine")),
            "fetching: not there",
            "kubectl get vm -n home lists what is there.",
        ),
    ],
)
def test_the_hint_for_a_missing_object_lists_its_kind(error, expected, hint):
    with pytest.raises(Problem) as problem, SESSION.api_errors("fetching"):
        raise error
    assert (problem.value.message, problem.value.hint) == (expected, hint)


def test_the_hint_for_unauthorized_names_the_kubeconfig():
    with pytest.raises(Problem, match="Unauthorized") as problem, SESSION.api_errors():
        raise Unauthorized("Unauthorized")
    assert problem.value.hint.startswith("The certificate or token in / is not valid")


def test_the_hint_for_an_unknown_type_lists_types():
    with pytest.raises(Problem) as problem:
        kind_of("vmirs")
    assert problem.value.hint == "Write vmi or vm."
