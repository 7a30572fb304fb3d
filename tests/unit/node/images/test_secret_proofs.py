"""Proofs of pull secrets: for whom, for what and when they count."""

import pytest

from corral.node.images.secret_proofs import SKEW_SECONDS, SecretProofs

OURS = SecretProofs("system:node:a", "docker.io/lab/debian:12", 1_000_000)


def test_a_proof_counts_for_its_caller_and_image():
    header = OURS.header(["hash", "other"])
    assert OURS.proven(header, ["hash"]) == OURS.prove("hash")
    assert OURS.proven(header, ["third"]) == ""
    assert (
        SecretProofs("system:node:b", "docker.io/lab/debian:12", 1_000_000).proven(header, ["hash"])
        == ""
    )
    assert (
        SecretProofs("system:node:a", "docker.io/lab/b:12", 1_000_000).proven(header, ["hash"])
        == ""
    )
    assert OURS.header([]) == ""


@pytest.mark.parametrize("late", [-SKEW_SECONDS - 1, SKEW_SECONDS + 1])
def test_a_proof_counts_for_some_minutes(late):
    then = SecretProofs("system:node:a", "docker.io/lab/debian:12", 1_000_000 + late)
    assert then.proven(OURS.header(["hash"]), ["hash"]) == ""


@pytest.mark.parametrize(
    "header", ["", "x", "1000000", "9" * 30 + " 00", "-1 00", "\u0661 00", "hash"]
)
def test_a_malformed_header_proves_nothing(header):
    assert OURS.proven(header, ["hash", ""]) == ""
