"""Watchers of several nodes in one process: frames, proofs, who leads, uploads, clocks, the shared folder."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.run.watched import free_port
from whichrank.model.errors import UsageError
from whichrank.model.last_words import JOINED, Words
from whichrank.run.nodes import evidence_transfer, protocol, wire
from whichrank.run.nodes.clock import Offset
from whichrank.run.nodes.follower import Follower
from whichrank.run.nodes.joining import Joining, Link, count, join, own_name
from whichrank.run.nodes.leader import Leader
from whichrank.run.nodes.peers import Peers
from whichrank.run.nodes.protocol import Beat, Listed, Request
from whichrank.run.nodes.roster import Node, Roster
from whichrank.run.nodes.shared import Shared
from whichrank.run.nodes.snapshot import Distant, Snapshot, rows_of, update
from whichrank.run.nodes.wire import Kind, Stream, WireError
from whichrank.run.watch.alarm import Alarm
from whichrank.run.watch.job_processes import Member, rank_state
from whichrank.run.watch.silence import RankState

QUIET: dict[str, str] = {}


def until(what: Callable[[], object], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def member(rank: int, **words: object) -> Member:
    now = time.time_ns()
    known = {"pid": 100 + rank, "world": 4, "phase": JOINED, "started_ns": now - 10**10, "beat_ns": now}
    return Member(Words(rank=rank, **{**known, "changed_ns": now, **words}), str(rank), state="S")  # type: ignore[arg-type]


def snapshot(*ranks: int, **more: object) -> Snapshot:
    return Snapshot(rows_of([member(rank) for rank in ranks]), **more)  # type: ignore[arg-type]


# -- frames and proofs


def pair() -> tuple[Stream, Stream]:
    leader, node = Stream(), Stream()
    one, other = wire.keys("secret", "a", "b")
    leader.seal(one, other)
    node.seal(other, one)
    return leader, node


def test_frames_arrive_whole_and_in_order() -> None:
    leader, node = pair()
    sent = b"".join(node.pack(Kind.BEAT, bytes([n]) * n) for n in range(50))
    heard = [frame for at in range(0, len(sent), 7) for frame in leader.feed(sent[at : at + 7])]
    assert heard == [(Kind.BEAT, bytes([n]) * n) for n in range(50)]


@given(st.integers(min_value=0, max_value=10_000), st.integers(min_value=1, max_value=255))
def test_a_frame_that_was_changed_is_refused(at: int, flip: int) -> None:
    leader, node = pair()
    sent = bytearray(node.pack(Kind.BEAT, b"x" * 100))
    sent[at % len(sent)] ^= flip
    with pytest.raises(WireError):
        # A changed length may make it wait for more: what comes next is no longer a frame either.
        list(leader.feed(bytes(sent) + bytes(wire.MOST[Kind.BEAT])))


def test_a_frame_that_is_sent_again_is_refused() -> None:
    leader, node = pair()
    sent = node.pack(Kind.REQUEST, b"{}")
    assert list(leader.feed(sent)) == [(Kind.REQUEST, b"{}")]
    with pytest.raises(WireError):
        list(leader.feed(sent))


def test_what_one_side_says_can_not_be_put_into_the_mouth_of_the_other() -> None:
    leader, _ = pair()
    with pytest.raises(WireError):
        list(leader.feed(leader.pack(Kind.BEAT, b"{}")))


@given(st.binary(max_size=300))
def test_noise_is_no_frame(noise: bytes) -> None:
    stream = Stream()
    try:
        frames = list(stream.feed(noise))
    except WireError:
        return
    assert all(len(payload) <= wire.MOST[kind] for kind, payload in frames)


def test_a_frame_of_any_length_is_not_waited_for() -> None:
    with pytest.raises(WireError, match="too long"):
        list(Stream().feed(b"\xff\xff\xff\xff\x05"))


# -- joining


@pytest.fixture
def place() -> tuple[str, int]:
    return "127.0.0.1", free_port()


class Meeting:
    """A leader and its followers, on this host."""

    def __init__(self, place: tuple[str, int], folder: Path) -> None:
        self.place, self.folder = place, folder
        self.told: list[str] = []
        self.open: list[Leader | Follower] = []

    def lead(self, token: str = "secret") -> Leader:
        leader = Leader(socket.create_server(self.place), "one", token, self.told.append)
        leader.start(self.folder / "uploads")
        self.open.append(leader)
        return leader

    def follow(self, name: str = "two", token: str = "secret") -> Follower:
        follower = Follower(self.place, name, token, self.told.append)
        follower.post(snapshot(2, 3))
        follower.start(self.folder)
        self.open.append(follower)
        return follower


@pytest.fixture
def meeting(place: tuple[str, int], tmp_path: Path) -> Iterator[Meeting]:
    made = Meeting(place, tmp_path)
    yield made
    for side in made.open:
        side.close()


def test_a_node_joins_and_is_seen(meeting: Meeting) -> None:
    leader, follower = meeting.lead(), meeting.follow()
    until(lambda: follower.joined and leader.roster.nodes and leader.roster.nodes["two"].ranks == [2, 3])
    until(lambda: follower.offset.best is not None)
    ahead, error = follower.offset.best or (1, 0)
    assert abs(ahead) <= error < 0.5, "it is one clock"
    leader.announce([Listed("one", [0, 1]), Listed("two", [2, 3])])
    until(lambda: len(follower.listed) == 2)
    leader.ask(Request("look", "look-1"))
    asked: list[Request] = []
    until(lambda: asked.extend(follower.asked()) or asked)
    assert asked == [Request("look", "look-1")]


def test_a_wrong_token_is_refused_and_told_once(meeting: Meeting) -> None:
    leader, follower = meeting.lead(), meeting.follow(token="guess")
    until(lambda: any("wrong token" in line for line in meeting.told) and follower.why == "wrong token")
    again = meeting.follow("three", token="guess")
    until(lambda: again.why == "wrong token")
    assert leader.roster.nodes == {}
    assert sum("was refused" in line for line in meeting.told) == 1
    assert not follower.joined


def test_a_leader_that_does_not_know_the_token_is_not_followed(meeting: Meeting) -> None:
    """One that welcomes everybody: the node wants its proof too."""
    with socket.create_server(meeting.place) as listener:
        follower = meeting.follow()
        connection, _ = listener.accept()
        with connection:
            stream = Stream()
            connection.sendall(stream.pack(Kind.HELLO, protocol.write(wire.Hello(wire.nonce()))))
            heard = next(iter(stream.feed(connection.recv(4096))))
            assert heard[0] is Kind.JOIN
            connection.sendall(stream.pack(Kind.WELCOME, protocol.write(wire.Welcome("me", "two", "f" * 64))))
            until(lambda: follower.why == "it does not know the token")
    assert not follower.joined


def test_the_token_never_crosses_the_wire(meeting: Meeting) -> None:
    inner, token = free_port(), "a-very-secret-token"
    leader = Leader(socket.create_server(("127.0.0.1", inner)), "one", token, meeting.told.append)
    leader.start(meeting.folder)
    meeting.open.append(leader)
    passed = bytearray()

    def pump(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passed.extend(data)
                target.sendall(data)

    with socket.create_server(meeting.place) as listener:
        follower = meeting.follow(token=token)
        near, _ = listener.accept()
        with near, socket.create_connection(("127.0.0.1", inner)) as far:
            for way in ((near, far), (far, near)):
                threading.Thread(target=pump, args=way, daemon=True).start()
            until(lambda: follower.joined and leader.roster.nodes)
            follower.close()
    assert b"nonce" in passed
    assert token.encode() not in passed


def test_strangers_are_let_go(meeting: Meeting) -> None:
    leader = meeting.lead()
    for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\0" * 5000, wire.Stream().pack(Kind.BEAT, b"{}"), b"\xff" * 64):
        with socket.create_connection(meeting.place, 5) as stranger:
            stranger.sendall(noise)
            stranger.settimeout(10)
            while stranger.recv(4096):
                pass  # what it is told, until it is let go
    assert leader.roster.nodes == {}
    follower = meeting.follow()
    until(lambda: follower.joined)


def test_a_follower_that_comes_first_waits_for_its_leader(meeting: Meeting) -> None:
    follower = meeting.follow()
    time.sleep(0.6)
    assert not follower.joined
    leader = meeting.lead()
    until(lambda: follower.joined)
    assert leader.roster.nodes["two"].open


def test_a_leader_that_ends_says_goodbye_and_another_may_come(meeting: Meeting) -> None:
    leader, follower = meeting.lead(), meeting.follow()
    until(lambda: follower.joined)
    leader.close()
    meeting.open.remove(leader)
    until(lambda: follower.goodbye)
    assert not follower.joined
    meeting.lead()
    until(lambda: follower.joined)


def test_a_node_that_goes_has_left_and_one_that_is_cut_off_is_silent(meeting: Meeting) -> None:
    leader, follower = meeting.lead(), meeting.follow()
    until(lambda: leader.roster.nodes and follower.joined)
    node = leader.roster.nodes["two"]
    follower.close()
    meeting.open.remove(follower)
    until(lambda: not node.open)
    assert node.standing(time.monotonic() + 10) == "left"
    node.open, node.closed = True, False
    assert node.standing(time.monotonic() + 10) == "silent"
    assert node.standing(node.heard + 1) == "here"


def test_two_nodes_of_one_name_are_two(meeting: Meeting) -> None:
    leader = meeting.lead()
    first, second = meeting.follow("same"), meeting.follow("same")
    until(lambda: first.joined and second.joined and len(leader.roster.nodes) == 2)
    assert {first.known, second.known} == {"same", "same-2"}


def test_an_upload_arrives_between_beats(meeting: Meeting, tmp_path: Path) -> None:
    leader, follower = meeting.lead(), meeting.follow()
    until(lambda: follower.joined)
    bundle = tmp_path / "bundle"
    (bundle / "dumps").mkdir(parents=True)
    (bundle / "dumps" / "rank_2").write_bytes(os.urandom(3 << 20))
    os.utime(bundle / "dumps" / "rank_2", ns=(10**18, 10**18))
    follower.deliver(bundle, "full-1", final=False)
    until(lambda: follower.receipts.get("full-1") == "")
    sent = leader.roster.nodes["two"].upload
    assert sent is not None
    assert sent.path is not None
    target = tmp_path / "kept" / "two"
    assert evidence_transfer.unpack(sent.path, target) == []
    assert (target / "dumps" / "rank_2").read_bytes() == (bundle / "dumps" / "rank_2").read_bytes()
    assert (target / "dumps" / "rank_2").stat().st_mtime_ns == 10**18


# -- uploads


def test_a_hostile_upload_reaches_nothing_outside(tmp_path: Path) -> None:
    box = tmp_path / "box.tar.gz"
    with tarfile.open(box, "w:gz") as archive:
        for name in ("../outside", "/etc/outside", "a/../../outside", "fine/words.json"):
            info = tarfile.TarInfo(name)
            info.size = 2
            archive.addfile(info, io.BytesIO(b"{}"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    refused = evidence_transfer.unpack(box, tmp_path / "target" / "node")
    assert len(refused) == 4
    assert [path.name for path in (tmp_path / "target").rglob("*") if path.is_file()] == ["words.json"]
    assert not list(tmp_path.rglob("outside"))


def test_what_is_too_large_stays_and_is_told(tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    (bundle / "large").write_bytes(os.urandom(1 << 20))
    (bundle / "small").write_bytes(b"words")
    box, note = evidence_transfer.pack(bundle, most=1 << 19)
    with tarfile.open(fileobj=box) as archive:
        assert archive.getnames() == ["small"]
    assert note == "too large to send: large"


# -- what is told of ranks


def test_a_rank_looks_the_same_from_afar() -> None:
    now = time.time_ns()
    near = member(
        3, enqueued=12, completed=11, pending=1, still_ns=now - 7 * 10**9, fresh_ns=now - 9 * 10**9,
        stuck_ns=now - 8 * 10**9, operation="all_reduce", place="train.py:1 f", work="checkpoint",
    )  # fmt: skip
    near.effort, near.traffic, near.turns = 0.5, 0.0, 1.0
    far = Distant(Words(), "x")
    message = protocol.read(Beat, protocol.write(Beat(1, Snapshot(rows_of([near])))))
    assert message is not None
    assert message.snapshot is not None
    # The other clock is two hours ahead: ages don't care.
    update(far, message.snapshot.rows[0], now + 7200 * 10**9)
    one, other = rank_state(near, time.time_ns()), rank_state(far, now + 7200 * 10**9)
    for name in RankState.__slots__:
        expected, found = getattr(one, name), getattr(other, name)
        assert found == (pytest.approx(expected, abs=0.5) if isinstance(expected, float) else expected), name


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b"[]", b'{"sent_ns": "x"}', b'{"sent_ns": 1, "snapshot": {"rows": [[1]]}}', b"[" * 100_000],
)
def test_what_is_no_beat_is_none(broken: bytes) -> None:
    assert protocol.read(Beat, broken) is None


def test_silence_is_learned() -> None:
    node = Node("two")
    for _ in range(4):
        node.heard -= 3  # three seconds between two beats: a slow network
        node.beat(Beat(1))
    assert node.patience_s == pytest.approx(12, abs=0.5)


@given(
    st.integers(-(10**12), 10**12),
    st.lists(st.tuples(st.integers(0, 10**8), st.integers(0, 10**8), st.integers(0, 10**6)), min_size=1, max_size=30),
)
def test_the_offset_of_a_clock_is_within_its_error(ahead: int, trips: list[tuple[int, int, int]]) -> None:
    offset, moment = Offset(), 10**18
    for there, back, held in trips:
        offset.learn(moment + ahead, moment + there, moment + there + held, moment + there + held + back + ahead)
        moment += 10**9
    best = offset.best
    assert best is not None
    assert abs(best[0] - ahead / 1e9) <= best[1] + 1e-6


def test_the_ranks_of_a_lost_leader_are_known() -> None:
    follower = Follower(("127.0.0.1", 1), "two", "", lambda _: None)
    follower.leader, follower.listed = "one", [Listed("one", [0, 1]), Listed("two", [2, 3])]
    peers = Peers(Link("two", 2, follower), lambda _: None)
    assert peers.ranks_of_lost_leader == [], "it has never been there"
    follower.heard_ns = 1
    assert peers.ranks_of_lost_leader == [0, 1]
    follower.closed = True
    assert peers.ranks_of_lost_leader == [], "its watcher has ended, its host has not"


# -- ranks that nobody watches


def test_ranks_that_nobody_watches_may_work() -> None:
    """Two of four wait; the others may save a checkpoint."""
    for blind, expected in ((False, "suspect"), (True, "calm")):
        alarm = Alarm(blind=blind)
        for now in range(40):
            waits = now > 10
            count = min(now, 10) + 1
            level = alarm.observe(now, [RankState(r, JOINED, count, count - waits, waits, busy=False) for r in (0, 1)])
        assert (level != "calm") == (expected != "calm")


def test_a_stopped_rank_is_told_whoever_else_there_is() -> None:
    alarm = Alarm(blind=True)
    for now in range(20):
        ranks = [RankState(0, JOINED, 5, 4, True), RankState(1, JOINED, 5, 5, False, stopped=True)]
        level = alarm.observe(now, ranks)
    assert level != "calm"


# -- who leads


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun --nnodes=4 train.py", 4),
        ("torchrun --nnodes 1:8 train.py", 8),
        ("accelerate launch --num_machines 3 train.py", 3),
        ("python train.py", 1),
        ("torchrun --nnodes", 1),
    ],
)
def test_the_launcher_says_how_many_nodes(command: str, expected: int) -> None:
    assert count(command.split(), QUIET) == expected


def test_slurm_says_how_many_and_who() -> None:
    assert count(["python"], {"SLURM_NNODES": "2"}) == 2
    assert own_name("", {"SLURMD_NODENAME": "n7"}) == "n7"
    assert own_name("../../etc", QUIET) == "etc"


def test_alone_by_default_and_it_is_said() -> None:
    told: list[str] = []
    link = join(Joining(), ["torchrun", "--nnodes=2"], told.append, QUIET)
    assert link is not None
    assert (link.leading, link.following, link.judges) == (None, None, True)
    assert len(told) == 1
    assert "--leader HOST:PORT or --shared DIR" in told[0]
    assert join(Joining(), ["torchrun", "train.py"], told.append, QUIET) is None


@pytest.mark.parametrize(
    ("leader", "words"),
    [
        ("10.255.255.1:29777", "a token is needed"),
        ("0.0.0.0:29777", "not the address of one host"),
        ("node7", "not a valid leader address"),
        (":29777", "not a valid leader address"),
        ("host:99999", "not a valid leader address"),
    ],
)
def test_what_can_not_work_is_said_before_the_job(leader: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHICHRANK_TOKEN", raising=False)
    with pytest.raises(UsageError, match=words):
        join(Joining(2, leader), [], lambda _: None, QUIET)


def test_the_first_at_the_address_leads(place: tuple[str, int]) -> None:
    wish = Joining(2, f"{place[0]}:{place[1]}", name="a")
    one, two = (join(wish, [], lambda _: None, QUIET) for _ in range(2))
    assert one is not None
    assert two is not None
    assert one.leading is not None
    assert two.following is not None
    assert not isinstance(two.side, Leader)
    for link in (one, two):
        link.close()


def test_a_token_that_others_may_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("secret")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="other users can read"):
        join(Joining(2, "127.0.0.1:29777", token_file=file), [], lambda _: None, QUIET)


# -- the shared folder


def shared(folder: Path, name: str, told: list[str] | None = None) -> Shared:
    made = Shared(folder, name, (told if told is not None else []).append, turn_s=0.1, lease_s=1.5)
    made.post(snapshot(2, 3))
    made.start(folder)
    return made


def test_one_of_those_who_share_a_folder_leads(tmp_path: Path) -> None:
    one, two = shared(tmp_path / "m", "one"), shared(tmp_path / "m", "two")
    try:
        assert (one.leads, two.leads) == (True, False)
        until(lambda: two.joined and one.roster.nodes and one.roster.nodes["two"].ranks == [2, 3])
        until(lambda: two.offset.best is not None)
        ahead, error = two.offset.best or (1, 0)
        assert abs(ahead) <= error
        one.ask(Request("full", "full-1"))
        asked: list[Request] = []
        until(lambda: asked.extend(two.asked()) or asked)
        assert asked == [Request("full", "full-1")]
        bundle = tmp_path / "bundle"
        bundle.mkdir()
        (bundle / "words").write_text("x")
        two.deliver(bundle, "full-1", final=True)
        until(lambda: two.receipts.get("full-1") == "")
        sent = one.roster.nodes["two"].upload
        assert sent is not None
        assert sent.final
        assert sent.path is not None
        assert evidence_transfer.unpack(sent.path, tmp_path / "kept") == []
        assert (tmp_path / "kept" / "words").read_text() == "x"
        one.close()
        until(lambda: two.goodbye)
        assert not two.joined
    finally:
        one.close()
        two.close()


def test_the_lease_of_a_lost_leader_is_taken(tmp_path: Path) -> None:
    told: list[str] = []
    one, two = shared(tmp_path / "m", "one", told), shared(tmp_path / "m", "two")
    three = shared(tmp_path / "m", "three")
    try:
        until(lambda: two.joined and three.joined)
        one._stop.set()  # it is gone without a word
        one._bell.set()
        until(lambda: two.leads or three.leads)
        leader, other = (two, three) if two.leads else (three, two)
        until(lambda: other.joined and other.leader == leader.name)
        assert not other.leads
        # It was only away: it comes back, and follows.
        one._stop.clear()
        one._thread = None
        one.start(tmp_path)
        until(lambda: not one.leads and one.joined)
        until(lambda: {"one", other.name} <= set(leader.roster.nodes))
    finally:
        for side in (one, two, three):
            side.close()


def test_a_lease_that_an_earlier_job_left_is_nobodys(tmp_path: Path) -> None:
    one = shared(tmp_path / "m", "one")
    one._stop.set()
    until(lambda: one._thread is not None and not one._thread.is_alive())
    two = shared(tmp_path / "m", "two")
    try:
        assert not two.leads
        until(lambda: two.leads)
        assert two.roster.nodes == {}, "what lies there of the earlier job is no node"
    finally:
        two.close()


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(UsageError, match="other users can write"):
        Shared(tmp_path, "one", lambda _: None)


def test_a_roster_keeps_who_comes_back() -> None:
    roster = Roster()
    node = roster.admit("two", "abc", "10.0.0.2", "one")
    assert roster.admit("two", "abc", "10.0.0.2", "one") is node
    assert roster.admit("one", "def", "10.0.0.3", "one").name == "one-2", "the leader has that name"


# -- nobody joins, follows or blocks without the token


def test_without_a_token_the_loopback_has_one_all_the_same(
    place: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHICHRANK_TOKEN", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, two = (join(Joining(2, f"{place[0]}:{place[1]}"), [], lambda _: None, QUIET) for _ in range(2))
    assert one is not None
    assert two is not None
    assert isinstance(one.side, Leader)
    assert isinstance(two.side, Follower)
    assert len(one.side.token) >= 32
    assert one.side.token == two.side.token
    (file,) = (tmp_path / "whichrank").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for link in (one, two):
        link.close()


def test_a_stranger_at_the_leaders_port_gets_nothing(
    place: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has taken the port before the leader came, and knows no token: not even an empty one."""
    monkeypatch.delenv("WHICHRANK_TOKEN", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    stranger = Leader(socket.create_server(place), "stranger", "", lambda _: None)
    stranger.start(tmp_path / "uploads")
    link = join(Joining(2, f"{place[0]}:{place[1]}", name="two"), [], lambda _: None, QUIET)
    assert link is not None
    assert isinstance(link.side, Follower)
    link.start(tmp_path)
    try:
        until(lambda: isinstance(link.side, Follower) and link.side.why == "wrong token")
        stranger.ask(Request("end", "end-1"))
        time.sleep(0.3)
        assert link.side.asked() == []
        assert not link.side.joined
    finally:
        link.close()
        stranger.close()


def test_idle_strangers_do_not_keep_a_node_out(meeting: Meeting) -> None:
    leader = meeting.lead()
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(meeting.place, 5))
        follower = meeting.follow()
        until(lambda: follower.joined, 8.0)
        assert sum(client.node is None for client in list(leader._clients.values())) <= 64


def test_a_leader_without_descriptors_goes_on(meeting: Meeting) -> None:
    """A stranger uses them up: the leader neither ends nor spins, and a node joins when there are some again."""
    import resource

    leader = meeting.lead()
    first = meeting.follow()
    until(lambda: first.joined)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, limits[1]))
    hoard: list[int] = []
    try:
        waiting = socket.socket()
        with contextlib.suppress(OSError):
            while True:
                hoard.append(os.open(os.devnull, os.O_RDONLY))
        waiting.connect(meeting.place)
        began, used = time.monotonic(), time.process_time()
        time.sleep(1.0)
        assert (time.process_time() - used) / (time.monotonic() - began) < 0.7, "it spins"
        assert first.joined
        assert leader._thread is not None
        assert leader._thread.is_alive()
    finally:
        for handle in hoard:
            os.close(handle)
        waiting.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    second = meeting.follow("three")
    until(lambda: second.joined)
