"""Hosts that go by several names."""

from __future__ import annotations

from whichrank.timeline.identity.addresses import with_domains


def test_a_name_with_its_domain_is_the_short_one_where_both_are_said():
    assert with_domains(["kt-a", "kt-a.lab.example", "kt-b.lab.example"]) == {"kt-a.lab.example": "kt-a"}


def test_one_short_name_in_two_domains_is_nobodys():
    assert with_domains(["kt-a", "kt-a.east.example", "kt-a.west.example"]) == {}


def test_addresses_are_not_shortened():
    assert with_domains(["10", "10.0.0.7"]) == {}
