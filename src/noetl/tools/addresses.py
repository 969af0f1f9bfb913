"""Which network addresses a task may connect to, judged on the address itself.

A name says nothing about where a connection ends, and neither does an odd spelling of a number; so the
policy is asked about what a name resolved to, and a connection goes only to an address that was judged.
Metadata services and link-local addresses are refused unless the operator opens them; loopback and
private networks are open unless the operator closes them. Nothing here opens a connection.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

import msgspec

from noetl.errors import NoetlError

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

POLICY_KEY: Final = "addresses"
"""Under this the tools of a worker share the policy of its operator."""
REFUSED_BY_DEFAULT: Final = (
    "0.0.0.0/8",  # "this host": reaches loopback by another name
    "::/128",
    "169.254.0.0/16",  # link-local, and the metadata services of most clouds
    "fe80::/10",
    "64:ff9b:1::/48",  # translated by the network's own rules: leads to any IPv4 address
    "fd00:ec2::/32",  # metadata and identity services, by IPv6
    "fd20:ce::/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "224.0.0.0/4",  # multicast, reserved and broadcast: never a web server
    "ff00::/8",
    "240.0.0.0/4",
)
TRANSLATED: Final = (
    IPv6Network("64:ff9b::/96"),  # NAT64
    IPv6Network("64:ff9b:1::/48"),  # NAT64 in a network of one's own, in its usual form
    IPv6Network("::ffff:0:0:0/96"),  # SIIT
)
"""What ends in an IPv4 address."""
IPV4_COMPATIBLE: Final = IPv6Network("::/96")
ISATAP: Final = 0x0000_5EFE
"""The third quarter of an address that ends in the IPv4 address of a tunnel's other end."""
ISATAP_BITS: Final = 0xFCFF_FFFF
"""Without the two that say whether the address is unique in the world, or of a group."""


class AddressRefusedError(NoetlError):
    """An address that the policy does not let a task connect to."""

    code = "http.address_refused"


class AddressPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """Networks in CIDR notation; of all that hold an address the narrowest decides, and `deny` on a tie.

    So `allow: 0.0.0.0/0` does not open a metadata service by accident, and `allow: 169.254.169.254/32`
    opens exactly that one.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def permits(self, address: str) -> bool:
        """Whether a connection to the address is allowed; false for a text that is no address."""
        try:
            parsed = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        return all(self._permits(each) for each in _meanings(parsed))

    def _permits(self, address: Address) -> bool:
        verdicts = [
            (network.prefixlen, rank, permitted)
            for rank, permitted, networks in (
                (0, False, REFUSED_BY_DEFAULT),
                (1, True, self.allow),
                (2, False, self.deny),
            )
            for network in _networks(networks)
            if network.version == address.version and address in network
        ]
        return max(verdicts)[2] if verdicts else True


@cache
def _networks(written: tuple[str, ...]) -> tuple[Network, ...]:
    return tuple(ip_network(each, strict=False) for each in written)


def _meanings(address: Address) -> Iterator[Address]:
    """The address, and those IPv4 addresses it may lead to by way of a translation."""
    yield address
    if not isinstance(address, IPv6Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo
    number = int(address)
    if (
        any(address in network for network in TRANSLATED)
        or (address in IPV4_COMPATIBLE and number > 1)
        or number >> 32 & ISATAP_BITS == ISATAP
    ):
        yield IPv4Address(number & 0xFFFFFFFF)
