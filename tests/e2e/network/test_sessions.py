"""DNS, policies and guards between pods that are bare namespaces: as root, and as anybody."""

import asyncio
import json
import os
import subprocess
import sys
from functools import cache

import pytest
from tests.e2e.network.policy_session import MANY

from corral.node.network.machine_network import remove
from corral.node.network.namespace_nft_rules import MAX_API_CONNECTIONS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ORDINARY = ("unshare", "--user", "--map-user=1000", "--map-group=1000")
USERS = {"root": (), "ordinary": ORDINARY} if os.geteuid() == 0 else {"ordinary": ()}


@pytest.fixture(params=USERS, scope="module")
def play(request, tmp_path_factory):
    """Runs a session as a user; answers what it saw."""

    @cache
    def played(name):
        directory = tmp_path_factory.mktemp("network")
        directories.append(directory)
        command = [sys.executable, "-W", "error", "-m", f"tests.e2e.network.{name}", directory]
        done = subprocess.run(
            [*USERS[request.param], *command],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    directories = []
    yield played
    for each in directories:
        asyncio.run(remove(each))  # whatever a session left that had no time to end


def test_policies_block_and_allow(play):
    saw = play("policy_session")
    assert saw["without"] == [True, True, True, True]
    # of: client to web; other to web; web to other; a pod that the API does not know yet, to web,
    # and to other; client to a port that is not allowed; other to the unknown one
    assert saw["ingress"] == [True, False, True, False, False, False, False]
    assert saw["last family"] == [True, False, False]
    assert saw["machine reaches"]
    assert saw["reported, reached"]
    assert saw["no such namespace"] == [False]
    assert saw["named port"] == [True, False]
    assert saw["block"] == [True, False]
    # client may not open connections, but with itself, and may answer
    assert saw["egress"] == [False, True, True]
    # open connections are judged too
    echoes = [saw[f"echo {when}"] for when in ("before", "under policy", "again")]
    assert echoes == [True, False, True]
    assert "corral_policy" not in saw["tables"]
    assert saw["many"] == MANY


def test_a_guest_cannot_reach_the_loopback_of_the_host(play):
    assert play("guard_session").get("loopback", [False, False]) == [False, False]


def test_a_guest_cannot_reach_the_metadata_of_clouds(play):
    saw = play("guard_session")["metadata"]
    assert set(saw.values()) == {"EHOSTUNREACH"}, saw


def test_a_probe_cannot_reach_the_host_by_its_link(play):
    assert play("guard_session").get("probe", "EHOSTUNREACH") == "EHOSTUNREACH"


def test_a_guest_that_floods_the_api_does_not_block_others(play):
    saw = play("guard_session")
    assert saw["connections"] == MAX_API_CONNECTIONS
    assert saw["another's call"]


def test_a_guest_cannot_fill_the_neighbour_tables(play):
    saw = play("guard_session")
    count, seconds = saw["neighbours"]
    assert count < 100 + 50 * seconds  # of 500 that it called, or called as


def test_a_guest_cannot_spoof_addresses_routers_or_dhcp_servers(play):
    assert play("guard_session")["impostors"] == ["itself", "itself, IPv6"]


def test_only_the_host_can_use_its_link(play):
    saw = play("guard_session")
    if "by the host" in saw:  # root has that link
        assert saw["by the host"] == [True, False]


def test_names_are_resolved(play):
    saw = play("dns_session")

    def answered(label, *records, code="NOERROR", truncated=False):
        return saw[label] == [code, truncated, list(records)]

    assert answered("service", "10.214.0.20")
    assert answered("service, last family", "10.214.0.20")
    assert answered("member", "10.1.0.7")
    assert answered("nobody", code="NXDOMAIN")
    assert answered("version", '"1.1.0"')
    for label, least, most in (("members", 25, 30), ("members, large", 60, 80)):
        code, truncated, records = saw[label]
        assert (code, truncated) == ("NOERROR", True)
        assert least < len(records) < most
    assert saw["members by tcp"][1] is False
    assert len(saw["members by tcp"][2]) == 200
    assert "10.1.0.7" in saw["nslookup"]
    assert answered("gone", code="NXDOMAIN")


def test_external_names_are_queried_once(play):
    saw = play("dns_session")
    assert saw["outside"] == saw["outside again"] == ["NOERROR", False, ["192.0.2.7"]]
    assert saw["asked again"] == 0
    assert saw["outside, nobody"] == ["NXDOMAIN", False, []]
    assert len(saw["outside, large"][2]) == 100
    assert saw["alias"] == ["NOERROR", False, ["192.0.2.7", "www.example."]]
    assert saw["inner"] == ["NOERROR", False, ["10.214.0.20", "web.default.svc.cluster.local."]]


def test_failing_upstream_servers_are_reported(play):
    saw = play("dns_session")
    assert saw["silent"] == saw["no server"] == ["SERVFAIL", False, []]
    assert saw["no server ms"] < saw["silent ms"]  # nobody is waited for
    assert saw["problems"] == []  # one name without a reply may be that name's fault
    assert saw["problems then"] == ["no name server of the host replies (127.0.0.1, 127.0.0.2)"]
    assert "names no name server" in saw["problems without"][0]
    assert saw["a server again"] == ["NXDOMAIN", False, []]
    assert saw["problems at last"] == []


def test_a_flood_of_dns_queries_does_not_block_others(play):
    saw = play("dns_session")
    labels = [*(f"under noise {number}" for number in range(5)), "after the noise"]
    assert [saw[label] for label in labels] == [["NOERROR", False, ['"1.1.0"']]] * 6
    assert saw["guarded again ms"] > 0
