"""Hosts whose clocks are minutes apart, and clocks that step.

Machines are simulated here; ``test_fencing`` has real ones on silent hosts whose clocks are apart.
"""

import os
from datetime import UTC, datetime

import pytest
from bench.cluster import replica_set
from tests.cluster import until
from tests.hosts import HOLLOW, Host, Site, site

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

HOUR = 3600
APART, FAR = 280, 600
"""Seconds: as much as a host may be off to join, about, and more than that."""
AHEAD, BEHIND = "host2", "host3"
SETS = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancereplicasets"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two hosts that have joined, one ahead and one behind, and one that has not."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces of hosts need root")
    with site(tmp_path_factory.mktemp("site"), 4) as made:
        made.first.set_clock(-HOUR)  # its certificates are an hour old
        made.up(*HOLLOW)
        made.first.set_clock(0)
        for name, seconds in ((AHEAD, APART), (BEHIND, -APART)):
            host = host_of(made, name)
            host.set_clock(seconds)
            # For the host that is ahead it has expired already.
            words = made.first.corral("token", "create", "--ttl", "4m", "--print-join-command")
            host.corral(*words.split()[1:], "--detach", *HOLLOW)
            document = replica_set(name, 1)
            labels = {"kubernetes.io/hostname": name}
            document["spec"]["template"]["spec"]["nodeSelector"] = labels
            made.api.one.call("POST", SETS, document)
        until("all nodes are ready", lambda: made.ready(*made.hosts[:3]))
        until("each has a machine", lambda: len(made.running()) == 2)
        yield made


def host_of(made: Site, name: str) -> Host:
    return next(each for each in made.hosts if each.name == name)


def conditions(made: Site, name: str) -> dict[str, dict]:
    return {each["type"]: each for each in made.nodes()[name]["status"]["conditions"]}


def renewed(made: Site, name: str) -> datetime:
    """Return the time of the last renewal of a node's Lease, as the node wrote it."""
    [lease] = [
        each
        for each in made.api.items("leases", "-n", "kube-node-lease")
        if each["metadata"]["name"] == name
    ]
    return datetime.fromisoformat(lease["spec"]["renewTime"])


def clock_is(made: Site, name: str, status: str) -> bool:
    return conditions(made, name)["ClockSynchronized"]["status"] == status


def in_one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (FAR, "10 minutes ahead of"),
        (-FAR, "10 minutes behind"),
        (-3 * HOUR, "3 hours behind"),  # before the certificates of the cluster are valid
    ],
)
def test_a_host_that_is_far_off_does_not_join(hosts, seconds, words):
    host = hosts.hosts[3]
    host.set_clock(seconds)
    said = in_one_line(host.corral(*hosts.join_words, *HOLLOW, check=False))
    assert f"the clock of this host is {words} that of the API server" in said
    assert "Set it, for instance by NTP" in said
    assert not host.layout.membership.exists()


def test_hosts_whose_clocks_are_apart_a_little_are_ready(hosts):
    for name in (AHEAD, BEHIND):
        found = conditions(hosts, name)
        assert (found["Ready"]["status"], found["ClockSynchronized"]["status"]) == ("True", "True")


@pytest.fixture(scope="module")
def stepped(hosts):
    """The hosts once both nodes report that their clocks are far off; what ran before."""
    before = hosts.running(), {each: conditions(hosts, each)["Ready"] for each in (AHEAD, BEHIND)}
    host_of(hosts, AHEAD).set_clock(FAR)
    host_of(hosts, BEHIND).set_clock(-FAR)
    for name in (AHEAD, BEHIND):
        until(f"{name} reports its clock", lambda name=name: clock_is(hosts, name, "False"), 25)
    return before


@pytest.mark.parametrize(
    ("name", "words"), [(AHEAD, "10 minutes ahead of"), (BEHIND, "10 minutes behind")]
)
def test_a_clock_that_steps_is_reported_on_the_node_and_on_the_host(hosts, stepped, name, words):
    words = f"runs on a host whose clock is {words} that of the API server: set it"
    assert words in conditions(hosts, name)["ClockSynchronized"]["message"]
    host = host_of(hosts, name)
    assert words in host.layout.log.read_text()
    for where in (hosts.first, host):
        assert words in in_one_line(where.corral("status", check=False))


def test_a_clock_that_steps_changes_nothing_else(hosts, stepped):
    machines, ready = stepped
    for name in (AHEAD, BEHIND):
        last = renewed(hosts, name)
        until(f"{name} renews its Lease", lambda name=name, last=last: renewed(hosts, name) > last)
        off = datetime.now(UTC) - renewed(hosts, name)  # this process has the first host's clock
        assert abs(off.total_seconds()) < APART
        now = conditions(hosts, name)["Ready"]
        assert now["lastTransitionTime"] == ready[name]["lastTransitionTime"]
    assert hosts.running() == machines


def test_a_member_that_is_far_off_starts_and_says_so(hosts, stepped):
    machines, _ = stepped
    for name in (AHEAD, BEHIND):
        host = host_of(hosts, name)
        host.corral("stop")
        host.layout.log.write_text("")
        host.corral("join", "--detach", *HOLLOW)
        until("the node is ready", lambda host=host: hosts.ready(host))
        until("its log says so", lambda host=host: "clock is 10" in host.layout.log.read_text())
        assert clock_is(hosts, name, "False")
    assert hosts.running() == machines


def test_a_clock_before_the_certificates_is_reported_where_it_is(hosts, stepped):
    machines, _ = stepped
    host = host_of(hosts, BEHIND)
    host.corral("stop")
    host.set_clock(-3 * HOUR)
    host.corral("join", "--detach", *HOLLOW)
    said = in_one_line(host.corral("status", check=False))
    question = "certificate is not yet valid"
    assert question in said
    assert "is the clock of this host right? It says" in said
    until("the log has it", lambda: question in host.layout.log.read_text())
    host.set_clock(0)
    until("its clock is right again", lambda: clock_is(hosts, BEHIND, "True"))
    assert hosts.ready(host)
    assert hosts.running() == machines
