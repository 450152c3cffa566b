"""A job of two hosts (network namespaces) with two ranks each, watched on both; hosts and watchers get lost."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.run import two_hosts
from tests.run.two_hosts import PORT, TwoHosts, Watch
from tests.together import Together
from whichrank.evidence.collectors import processes
from whichrank.flows.diagnose.pipeline import diagnose
from whichrank.lab import wires

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.skipif(not two_hosts.possible(), reason="network namespaces need root"),
    pytest.mark.slow,
]
LIMIT_S = 240
"""Four ranks need ten seconds to start where nothing else runs; other tests may."""


def ended(*watches: Watch) -> list[int]:
    """The codes of both, once they have ended."""
    codes = []
    for watch in watches:
        try:
            codes.append(watch.process.wait(LIMIT_S))
        except subprocess.TimeoutExpired:
            pytest.fail(watch.told)
    return codes


def listeners(hosts: TwoHosts, number: int) -> set[str]:
    """Addresses on which the watcher of a host listens."""
    watcher = hosts.watches[number].process.pid
    done = subprocess.run(
        ["ip", "netns", "exec", hosts.network.hosts[number].namespace, "ss", "-Hltnp"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.split()[3] for line in done.stdout.splitlines() if f"pid={watcher}," in line}


# -- what happens


def hang(hosts: TwoHosts) -> object:
    hosts.forked = True
    watches = hosts.start("hang", policy="end")
    hosts.await_step()
    heard = listeners(hosts, 0), listeners(hosts, 1)
    return ended(*watches), heard


def kill(hosts: TwoHosts) -> object:
    hosts.forked = True
    return ended(*hosts.start("kill"))


def host_lost(hosts: TwoHosts, number: int = 1) -> object:
    watches = hosts.start("run", policy="end")
    hosts.await_step()
    wires.link_down(hosts.network, hosts.network.hosts[number])
    return ended(*watches)


def host_of_leader_lost(hosts: TwoHosts) -> object:
    return host_lost(hosts, 0)


def leader_killed(hosts: TwoHosts) -> object:
    """Its job goes on; then a rank of the other host is killed."""
    alpha, beta = hosts.start("run")
    hosts.await_step()
    everyone = processes.everybody()
    job = [(pid, everyone[pid].start_ticks) for pid in processes.below(alpha.process.pid, everyone)]
    alpha.process.kill()
    try:
        beta.await_word("the leader alpha has ended: this node goes on alone")
        went_on = beta.process.poll() is None
        os.kill(int((hosts.folder / "reached.2").read_text()), signal.SIGKILL)
        return went_on, ended(beta)
    finally:
        for pid, start in job:
            if processes.same(pid, start):
                os.kill(pid, signal.SIGKILL)


def shared(hosts: TwoHosts) -> object:
    watches = hosts.start("hang", "--shared", hosts.folder / "meeting", policy="end")
    hosts.await_step()
    heard = listeners(hosts, 0) | listeners(hosts, 1)
    return ended(*watches), heard


def wrong_token(hosts: TwoHosts) -> object:
    """The watchers meet before any rank is there: a job without ranks will do."""
    wrong, end = hosts.folder / "wrong", hosts.folder / "end"
    wrong.write_text("another-secret\n")
    wrong.chmod(0o600)
    first, second = hosts.network.hosts
    leader = ("--leader", f"{first.address}:{PORT}", "--token-file")
    job = ["sh", "-c", f"until [ -e {end} ]; do sleep 0.2; done"]
    alpha = hosts.watch_on(first, job, *leader, hosts.folder / "token")
    beta = hosts.watch_on(second, job, *leader, wrong)
    hosts.watches = [alpha, beta]
    alpha.await_word("was refused: wrong token")
    beta.await_word("don't agree: wrong token")
    end.touch()
    return ended(alpha, beta)


def full_disk(hosts: TwoHosts) -> object:
    small = hosts.folder / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], check=True)
    try:
        first, second = hosts.network.hosts
        alpha = hosts.start_on(first, "hang", policy="end")
        beta = hosts.start_on(second, "hang", *hosts.by_address, "--out", small / "out", policy="end")
        hosts.watches = [alpha, beta]
        hosts.await_step()
        with (small / "filler").open("wb") as stream:
            room = os.statvfs(small)
            stream.write(bytes(room.f_bavail * room.f_bsize))
        return ended(alpha, beta)
    finally:
        deadline = time.monotonic() + 10
        while subprocess.run(["umount", str(small)], check=False).returncode and time.monotonic() < deadline:
            time.sleep(0.5)


SCENES = (hang, kill, host_lost, host_of_leader_lost, leader_killed, shared, wrong_token, full_disk)
Played = Callable[[Callable[[TwoHosts], object]], tuple[object, Watch, Watch]]


@pytest.fixture(scope="module")
def played(request: pytest.FixtureRequest) -> Iterator[Played]:
    """All scenes that the chosen tests ask for, some at once: most of the time they wait."""
    scenes = {scene.__name__: scene for scene in SCENES}

    def play(name: str, folder: Path) -> tuple[object, Watch, Watch]:
        with TwoHosts(folder / f"{name}-{os.getpid()}") as hosts:  # namespaces are named after it
            outcome = scenes[name](hosts)
            return outcome, hosts.watches[0], hosts.watches[1]

    begun = Together(play, scenes, 2, request)
    yield lambda scene: begun[scene.__name__]
    begun.close()


# -- what came of it


def test_a_hang_is_one_verdict_over_both_hosts(played: Played) -> None:
    (codes, heard), alpha, beta = played(hang)
    assert heard == ({f"10.77.0.1:{PORT}"}, set())
    assert codes != [0, 0]
    assert alpha.verdict["culprits"]["ranks"] == [2], alpha.told
    assert alpha.verdict["category"] == "hang"
    assert (alpha.evidence_of("alpha"), alpha.evidence_of("beta")) == ({0, 1}, {2, 3})
    assert not (beta.out / "verdict.json").exists(), "the leader gives the verdict"
    assert "the verdict on all nodes, by alpha: Rank 2" in beta.told
    assert "ending the job, as the leader asks" in beta.told
    manifest = alpha.document("bundle/manifest.json")
    clocks = {host["name"]: host for host in manifest["hosts"]}
    assert set(clocks) == {"alpha", "beta"}
    assert abs(clocks["beta"]["clock_offset_s"]) <= clocks["beta"]["offset_error_s"] < 1
    assert {file["path"] for file in manifest["files"]} >= {"nodes/beta/dumps/rank_2", "nodes/alpha/stacks/rank_0.txt"}
    again = diagnose([alpha.out / "bundle"], jobs=1)
    assert again.verdict.culprits.ranks == (2,)
    assert {rank.rank: rank.host for rank in again.ranks} == {0: "alpha", 1: "alpha", 2: "beta", 3: "beta"}


def test_a_killed_rank_of_the_other_host(played: Played) -> None:
    codes, alpha, beta = played(kill)
    assert codes == [1, 1]
    verdict = alpha.verdict
    assert verdict["cause"] == "rank-killed"
    assert (verdict["culprits"]["ranks"], verdict["culprits"]["hosts"]) == ([2], ["beta"])
    assert alpha.evidence_of("alpha") == {0, 1}
    assert 3 in alpha.evidence_of("beta")
    assert "by alpha: Rank 2 on beta was killed" in beta.told
    assert not (beta.out / "verdict.json").exists()


@pytest.mark.bars
def test_a_host_that_is_lost(played: Played) -> None:
    codes, alpha, beta = played(host_lost)
    assert 0 not in codes
    for watch in (alpha, beta):
        assert (watch.verdict["cause"], watch.verdict["culprits"]["hosts"]) == ("host-lost", ["beta"]), watch.told
        assert watch.verdict["culprits"]["ranks"] == [2, 3]
    assert "nothing is heard of beta (ranks 2, 3) any more" in alpha.told
    assert "the leader alpha no longer answers: this node goes on alone" in beta.told
    assert (alpha.evidence_of("alpha"), beta.evidence_of("beta")) == ({0, 1}, {2, 3})
    missing = alpha.document("bundle/manifest.json")["missing"]
    assert any(gap["host"] == "beta" and gap["what"] == "evidence of the node" for gap in missing)


@pytest.mark.bars
def test_the_host_of_the_leader_is_lost(played: Played) -> None:
    codes, alpha, beta = played(host_of_leader_lost)
    assert 0 not in codes
    for watch in (beta, alpha):
        assert (watch.verdict["cause"], watch.verdict["culprits"]["hosts"]) == ("host-lost", ["alpha"]), watch.told
        assert watch.verdict["culprits"]["ranks"] == [0, 1]
    assert beta.evidence_of("beta") == {2, 3}


@pytest.mark.bars
def test_a_leader_that_is_killed_and_a_fault_after_it(played: Played) -> None:
    (went_on, codes), _, beta = played(leader_killed)
    assert went_on, "the job does not depend on its watchers"
    assert codes == [1]
    assert (beta.verdict["cause"], beta.verdict["culprits"]["ranks"]) == ("rank-killed", [2]), beta.told
    assert 3 in beta.evidence_of("beta")


@pytest.mark.bars
def test_a_shared_folder_and_no_connection(played: Played) -> None:
    (codes, heard), alpha, beta = played(shared)
    assert heard == set(), "nobody listens"
    assert codes != [0, 0]
    leader, other = (alpha, beta) if "beta has joined" in alpha.told else (beta, alpha)
    place = leader.out if leader is alpha else beta.out.parent.parent
    leader.out = place
    assert leader.verdict["culprits"]["ranks"] == [2], leader.told
    assert leader.evidence_of("alpha") | leader.evidence_of("beta") == {0, 1, 2, 3}
    assert "the verdict on all nodes" in other.told
    clocks = {host["name"]: host for host in leader.document("bundle/manifest.json")["hosts"]}
    measured = clocks[other.host.name]
    assert abs(measured["clock_offset_s"]) <= measured["offset_error_s"] < 3


def test_a_wrong_token_is_refused(played: Played) -> None:
    codes, alpha, beta = played(wrong_token)
    assert codes == [0, 0], "each goes on alone"
    assert alpha.told.count("was refused: wrong token") == 1
    assert "don't agree: wrong token" in beta.told
    assert alpha.document("run.json")["nodes"] == []


@pytest.mark.bars
def test_a_node_with_a_full_disk(played: Played) -> None:
    _, alpha, beta = played(full_disk)
    assert alpha.verdict["culprits"]["ranks"] == [2], alpha.told
    assert alpha.evidence_of("beta") == {2, 3}, "the evidence went elsewhere, and to the leader"
    assert "there is no room left" in beta.told
