"""Both ends of connections, and which host and ranks an address belongs to."""

from __future__ import annotations

from whichrank.model.evidence import Ref
from whichrank.records.network import PortState, TcpSocket
from whichrank.timeline.identity.who import People
from whichrank.timeline.network.connections import Connections, connect


def end(local: str, peer: str, *, state: str = "ESTAB", source: str = "a.txt", **more) -> TcpSocket:
    (here, port), (there, other) = (text.rsplit(":", 1) for text in (local, peer))
    return TcpSocket(Ref(source, "line 2", state), state, here, int(port), there, int(other), **more)


def people(**hosts: str) -> People:
    known = People(world=len(hosts))
    for name, host in hosts.items():
        known.note(int(name[1:]), pid=100 + int(name[1:]), host=host)
    return known


def lined_up(*sockets: TcpSocket, who: People | None = None, ports: tuple[PortState, ...] = ()) -> Connections:
    return connect(sockets, ports, who or People())


def test_both_ends_are_one_connection():
    there = end("10.0.0.1:4000", "10.0.0.2:5000", rank=0)
    back = end("10.0.0.2:5000", "10.0.0.1:4000", rank=1)
    found = lined_up(there, back)
    assert [(f.sender, f.receiver) for f in found.flows] == [(there, back), (back, there)]
    assert [(p.name, p.ranks) for p in found.places] == [("10.0.0.1", (0,)), ("10.0.0.2", (1,))]


def test_what_stays_on_a_host_is_left_out():
    found = lined_up(
        end("127.0.0.1:4000", "127.0.0.1:5000", rank=0),
        end("10.0.0.1:4000", "10.0.0.1:5000", rank=0),
        end("10.0.0.1:4001", "10.1.0.1:5000", rank=0),
        end("10.1.0.1:5000", "10.0.0.1:4001", rank=0),
    )
    assert found.known
    assert not found.flows
    assert [p.addresses for p in found.places] == [{"10.0.0.1", "10.1.0.1"}]


def test_a_place_is_called_by_its_host_where_that_is_its_own():
    sockets = (end("10.0.0.1:4000", "10.0.0.2:5000", rank=0), end("10.0.0.2:5000", "10.0.0.1:4000", rank=1))
    assert [p.name for p in lined_up(*sockets, who=people(r0="a", r1="b")).places] == ["a", "b"]
    # Containers of one host have addresses of their own, and the host's name tells them apart no more.
    assert [p.name for p in lined_up(*sockets, who=people(r0="a", r1="a")).places] == ["10.0.0.1", "10.0.0.2"]


def test_addresses_of_one_namespace_are_one_place():
    port = PortState(Ref("net.1.txt", "line 2", "eth0"), "eth0", addresses=("10.0.0.1", "10.9.0.1"))
    found = lined_up(
        end("10.0.0.1:4000", "10.0.0.2:5000", rank=0), end("10.0.0.2:6000", "10.9.0.1:7", rank=1), ports=(port,)
    )
    assert found.places[0].addresses == {"10.0.0.1", "10.9.0.1"}
    assert {f.target.name for f in found.flows} == {"10.0.0.1", "10.0.0.2"}


def test_nobody_was_seen_at_an_unknown_address():
    (flow,) = lined_up(end("10.0.0.1:4000", "10.0.0.2:5000", rank=0)).flows
    assert (flow.target.name, flow.target.seen, flow.receiver) == ("10.0.0.2", False, None)


def test_only_ranks_count_where_they_are_known():
    mine = end("10.0.0.1:4000", "10.0.0.2:5000", pid=100, host="a")
    other = end("10.0.0.1:4001", "10.0.0.3:5000", pid=7, host="a")
    found = lined_up(mine, other, who=people(r0="a"))
    assert [f.sender.rank for f in found.flows] == [0]


def test_the_last_look_counts_and_the_first_is_kept():
    before = end("10.0.0.1:4000", "10.0.0.2:5000", source="look1.txt", values={"bytes_sent": 1.0})
    after = end("10.0.0.1:4000", "10.0.0.2:5000", source="look2.txt", values={"bytes_sent": 9.0})
    (flow,) = lined_up(after, before).flows
    assert (flow.sender, flow.before) == (after, before)


def test_who_listens_is_found_on_any_of_its_addresses():
    listens = end(":::29500", ":::0", state="LISTEN", rank=0)
    known = end("10.0.0.1:4000", "10.0.0.3:5000", rank=0)
    asks = end("10.0.0.2:4000", "10.0.0.1:29500", state="SYN-SENT", rank=1)
    (flow,) = lined_up(listens, known, asks).opening
    assert flow.receiver is listens
