"""Policies between pods that are bare namespaces; prints what reaches what."""

import asyncio

from lightkube.models.core_v1 import Namespace as ApiNamespace, Pod as ApiPod
from lightkube.models.networking_v1 import NetworkPolicy
from tests.e2e.network.site import BRIEF, PATIENCE, Pod, Site, play

from corral.api.object import Key
from corral.node.network import nft
from corral.node.network_policy.network_policy_controller import NetworkPolicyController, apply
from corral.node.network_policy.nft_rules import REMOVAL, TABLE
from corral.node.network_policy.nft_table import Table
from corral.node.network_policy.parsed_policy import INGRESS, PodInfo, parse_policy

CLIENT = {"podSelector": {"matchLabels": {"app": "client"}}}
WEB = Key("default", "web")
DENY = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"podSelector": {}}}
MANY = 3000


async def put(site: Site, name: str, **spec: object) -> None:
    document = {"metadata": {"name": name, "namespace": "default"}, "spec": spec}
    await site.client.create(NetworkPolicy, document)


async def is_echoed(connection, seconds: float = PATIENCE) -> bool:
    """Return whether an open connection echoes; what was lost is sent anew."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(seconds):
            await loop.sock_sendall(connection, b"hello")
            return await loop.sock_recv(connection, 5) == b"hello"
    except TimeoutError:
        return False


async def session(site: Site) -> None:
    saw, reaches = site.saw, site.reaches
    web, client, other, late = [
        await site.link(name, number)
        for number, name in enumerate(("web", "client", "other", "late"), 5)
    ]
    for pod in (web, client, other):
        await site.relabel(pod, app=pod.name)
        await site.serve(pod, 80, 8080)
    site.tasks.start(NetworkPolicyController(site.context, site.network).run(), name="policies")

    async def seen(name: str, wanted: list[bool], *ways: tuple) -> None:
        """Look which ways are open; nobody waits long for those that shall not be."""
        saw[name] = [
            await reaches(*way, seconds=PATIENCE if is_open else BRIEF)
            for is_open, way in zip(wanted, ways, strict=True)
        ]

    everybody = [(client, web, 80), (other, web, 80), (web, other, 80), (late, web, 80)]
    await seen("without", [True] * 4, *everybody)

    open_before = await site.connect(other, web, 80)
    saw["echo before"] = await is_echoed(open_before)
    rule = {"from": [CLIENT], "ports": [{"port": 80}]}
    await put(site, "web", podSelector={"matchLabels": {"app": "web"}}, ingress=[rule])
    saw["policy ms"] = await site.until(lambda: closed(site, other, web, 80))
    others = [(client, web, 8080), (late, other, 80), (other, late, 80)]
    await seen("ingress", [True, False, True, *[False] * 4], *everybody, *others)
    saw["families"] = len(site.network.families)
    ways = [(client, web, 80, -1), (other, web, 80, -1), (client, web, 81, -1)]
    await seen("last family", [True, False, False], *ways)
    saw["machine reaches"] = await reaches(site.network, web, 80, seconds=PATIENCE)
    saw["echo under policy"] = await is_echoed(open_before, BRIEF)

    await site.serve(late, 80)
    await site.relabel(late, app="client")
    saw["pod ms"] = await site.until(lambda: reaches(late, web, 80))
    saw["reported, reached"] = await reaches(other, late, 80, seconds=PATIENCE)

    named = {"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]}
    named["ports"] = [{"port": "http", "protocol": "TCP"}]
    await site.client.patch(NetworkPolicy, WEB, {"spec": {"ingress": [named]}})
    await site.until(lambda: closed(site, client, web, 80))
    await seen("no such namespace", [False], (client, web, 8080))
    await site.client.patch(
        ApiNamespace, Key("", "default"), {"metadata": {"labels": {"team": "a"}}}
    )
    await site.until(lambda: reaches(client, web, 8080))
    await seen("named port", [True, False], (client, web, 8080), (client, web, 80))

    range_ = str(site.network.pod_cidrs[0])
    block = {"ipBlock": {"cidr": range_, "except": [f"{client.address}/32"]}}
    await site.client.patch(NetworkPolicy, WEB, {"spec": {"ingress": [{"from": [block]}]}})
    await site.until(lambda: reaches(other, web, 80))
    await seen("block", [True, False], (other, web, 80), (client, web, 80))
    saw["echo again"] = await is_echoed(open_before)
    open_before.close()

    await site.client.delete(NetworkPolicy, WEB)
    await put(site, "deny", podSelector={"matchLabels": {"app": "client"}}, policyTypes=["Egress"])
    await site.until(lambda: closed(site, client, web, 80))
    ways = [(client, web, 80), (client, client, 80), (other, client, 80)]
    await seen("egress", [False, True, True], *ways)

    await site.client.delete(ApiPod, Key("default", "other"), grace_seconds=0)
    saw["gone ms"] = await site.until(lambda: closed(site, other, web, 80))

    await site.client.delete(NetworkPolicy, Key("default", "deny"))
    await site.until(lambda: reaches(client, web, 80))
    saw["tables"] = await site.network.namespace.call(nft.query, "list tables")
    saw["many"] = await site.network.namespace.call(many, site.network.pod_cidrs)


def many(ranges) -> int:
    """Return the pods in the table, of more than fit into one transaction."""
    table = Table(ranges)
    pods = [
        PodInfo("default", {"app": "web"}, tuple(str(each[number]) for each in ranges), ())
        for number in range(2, MANY + 2)
    ]
    deny = parse_policy(NetworkPolicy.from_dict(DENY))
    pod_infos = {Key("default", f"pod{number}"): each for number, each in enumerate(pods)}
    table.change(policies={WEB: deny}, namespaces={"default": {}}, pod_infos=pod_infos)
    apply(table.full_transaction)
    found = nft.query(f"list map {TABLE} {INGRESS}4").count(" : jump ")
    nft.apply(REMOVAL)
    return found


async def closed(site: Site, source: Pod, target: Pod, port: int) -> bool:
    return not await site.reaches(source, target, port)


if __name__ == "__main__":
    play(session, 211)
