"""Rate limit of DNS queries by source: nftables rules, as text.  No I/O.

The server's socket buffers a few hundred packets.  A single guest could fill it faster than the
server reads, so the kernel drops what exceeds its rate.
"""

from typing import Final

from corral.node.network.netlink import Address

TABLE: Final = "inet corral_dns"
"""Prefix of the tables' names: one for each IP version."""
QUERIES_PER_SECOND: Final = 500
BURST: Final = 100
"""UDP queries of one source."""
MARK: Final = "update @sources"
"""Text in a listing of the table while its rule exists."""
_TIMEOUT_SECONDS: Final = 10
_MAX_SOURCES: Final = 65536


def table_name(gateway: Address) -> str:
    """Return the name of the table for an address of the server."""
    return f"{TABLE}{gateway.version}"


def rules(gateway: Address, port: int) -> str:
    """Return the transaction that creates or replaces the table of an address."""
    version, table = gateway.version, table_name(gateway)
    family = "ip" if version == 4 else "ip6"
    rate = f"{QUERIES_PER_SECOND}/second burst {BURST} packets"
    return f"""\
table {table}
delete table {table}
table {table} {{
  set sources {{
    type ipv{version}_addr; size {_MAX_SOURCES}; flags dynamic,timeout; timeout {_TIMEOUT_SECONDS}s
  }}
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    {family} daddr {gateway} udp dport {port} \
update @sources {{ {family} saddr limit rate over {rate} }} drop
  }}
}}
"""
