"""Which addresses a task may connect to."""

from __future__ import annotations

import pytest

from noetl.tools.addresses import AddressPolicy


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.0.1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "0.0.0.0",
        "::",
        "224.0.0.1",
        "255.255.255.255",
        "ff02::1",
        "::ffff:169.254.169.254",
        "::ffff:a9fe:a9fe",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
        "::169.254.169.254",
        "::ffff:0:169.254.169.254",
        "64:ff9b:1::169.254.169.254",
        "64:ff9b:1:a9fe:a9:fe00::",
        "2001:db8::5efe:169.254.169.254",
        "2001:db8::200:5efe:169.254.169.254",
        "not an address",
    ],
)
def test_metadata_services_and_link_local_addresses_are_refused_in_every_form(address: str) -> None:
    assert not AddressPolicy().permits(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "fd12::1",
        "93.184.216.34",
        "2606:4700::1",
        "::ffff:0:93.184.216.34",
        "2001:db8::5efe:93.184.216.34",
    ],
)
def test_loopback_private_and_public_addresses_are_open(address: str) -> None:
    assert AddressPolicy().permits(address)


def test_an_operator_opens_exactly_the_address_he_names() -> None:
    policy = AddressPolicy(allow=("169.254.169.254/32",))
    assert policy.permits("169.254.169.254")
    assert not policy.permits("169.254.169.253")


def test_allowing_everything_opens_no_metadata_service() -> None:
    policy = AddressPolicy(allow=("0.0.0.0/0", "::/0"))
    assert not policy.permits("169.254.169.254")
    assert not policy.permits("fe80::1")


def test_the_narrowest_network_decides_and_a_tie_is_denied() -> None:
    policy = AddressPolicy(deny=("10.0.0.0/8",), allow=("10.1.0.0/16",))
    assert not policy.permits("10.2.0.1")
    assert policy.permits("10.1.0.1")
    assert not AddressPolicy(deny=("10.0.0.0/8",), allow=("10.0.0.0/8",)).permits("10.0.0.1")


def test_a_closed_ipv4_network_is_closed_through_ipv6_too() -> None:
    assert not AddressPolicy(deny=("127.0.0.0/8",)).permits("::ffff:127.0.0.1")


def test_a_network_that_translates_by_its_own_rules_is_opened_by_its_operator() -> None:
    assert not AddressPolicy().permits("64:ff9b:1::93.184.216.34")
    policy = AddressPolicy(allow=("64:ff9b:1::/48",))
    assert policy.permits("64:ff9b:1::93.184.216.34")
    assert not policy.permits("64:ff9b:1::169.254.169.254")
