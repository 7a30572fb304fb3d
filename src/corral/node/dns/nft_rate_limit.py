"""What keeps one guest's questions from drowning all others': packet filter rules, as text.  Pure.

The server's socket holds a few hundred packets.  Who sends more at once than is their share would
fill it faster than it can be read, so the kernel drops the surplus before.
"""

from typing import Final

from corral.node.network.netlink import Address

TABLE: Final = "inet corral_dns"
"""What the tables' names begin with: one for each IP version."""
QUERIES_A_SECOND: Final = 500
BURST: Final = 100
"""What one source may ask by UDP."""
MARK: Final = "update @sources"
"""What a listing of the table says where its rule is there."""
_FORGET_SECONDS: Final = 10
_MOST_SOURCES: Final = 65536


def table_of(gateway: Address) -> str:
    """The table for an address of the server."""
    return f"{TABLE}{gateway.version}"


def rules(gateway: Address, port: int) -> str:
    """The transaction that puts the table of an address in place, whatever stood there."""
    version, table = gateway.version, table_of(gateway)
    family = "ip" if version == 4 else "ip6"
    most = f"{QUERIES_A_SECOND}/second burst {BURST} packets"
    return f"""\
table {table}
delete table {table}
table {table} {{
  set sources {{
    type ipv{version}_addr; size {_MOST_SOURCES}; flags dynamic,timeout; timeout {_FORGET_SECONDS}s
  }}
  chain input {{
    type filter hook input priority filter - 10; policy accept;
    {family} daddr {gateway} udp dport {port} \
update @sources {{ {family} saddr limit rate over {most} }} drop
  }}
}}
"""
