"""Lines of communication that failed: DETAIL checks, Gloo, NCCL's error classes, store and rendezvous."""

from __future__ import annotations

import re
from functools import partial
from typing import NamedTuple

from whichrank.evidence.readers.torch_output.found import Matcher, Read, group_rank_of, number_after, number_list
from whichrank.facts.shapes import BOUND
from whichrank.records.events.base import Event
from whichrank.records.events.collectives import FingerprintMismatch, MonitoredBarrierFailed
from whichrank.records.events.communication import GlooInitError, GlooMismatch, GlooTimeout, PeerClosed
from whichrank.records.events.startup import (
    NO_HEARTBEAT,
    InitError,
    MemberBegins,
    MembersMet,
    RendezvousError,
    StoreError,
    StorePassed,
)

# Early versions print one side only; an operation without tensors may stand there by its bare name.
_RUNNING = re.compile(
    r"Rank (\d{1,7}) is running (?:inconsistent )?collective: (?:CollectiveFingerPrint\(|(_?[A-Z][A-Z0-9_]{2,40})\b)"
)
_SEQ = re.compile(r"SequenceNumber=(\d{1,18})")
_OP = re.compile(r"OpType=(\w{1,64})")
_SHAPE = re.compile(r"TensorShape=\[([\d, ]{0,2000})\]")
_DTYPE = re.compile(r"TensorDtypes=([\w, ]{1,200}?)(?:, TensorDevice|\)|$)")
_BARRIER = re.compile(r"\[Rank (\d{1,7})\]: Ranks? ([\d, ]{1,4000}) failed to pass monitoredBarrier")
_REACHED = re.compile(r"Rank (\d{1,7}) successfully reached monitoredBarrier")
_MS = re.compile(r"(\d{1,12}) ?ms")
_DIRECTION = re.compile(r"for (recv|send) operation")
_ADDRESS = re.compile(r"(?:peer |error |pair |remote=)(\[[^\]\s]{1,100}\](?::\d{1,5})?)")
_REMOTE_PEER = re.compile(r"Connection closed by remote peer ([^\s<]{1,253}(?:<\d{1,5}>)?)")
_WHO = re.compile(r"\(rank=(\d{1,7}), size=(\d{1,7}), local=(\[[^\]]{1,100}\](?::\d{1,5})?)")
_SIZES = re.compile(r"(\d{1,18}) vs (\d{1,18})")
_CONNECT = re.compile(r"connect to \(([^,)]{1,253}), (\d{1,5})\)")
_CONNECT_FAILED = re.compile(r"failed to connect to \[?([^\]\s]{1,253}?)\]?:(\d{1,5})\b")
_JOINED = re.compile(r"after (\d{1,9}) seconds waiting for clients\. (\d{1,9})/(\d{1,9}) clients")
_KEYS = re.compile(r"wait timeout after (\d{1,12})ms, keys: (\S{1,500})")
_PORT = re.compile(r"port: (\d{1,5})")
_STORE_BARRIER = re.compile(
    r"rank:? (\d{1,7}), (?:for )?key: (\S{1,200}) \(world_size=(\d{1,9}), "
    r"(?:worker_count|num_workers_joined)=(\d{1,9}), timeout=([^\s)]{1,40})"
)
_WAITED = re.compile(r"waitForInput: socket .{1,300} timed out after (\d{1,12})ms")
_MEMBER = re.compile(r"GLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(\d{1,7})")
_STORE_PASSED = re.compile(r"Rank (\d{1,7}): Completed store-based barrier for key:\s?(\S{1,200})")
_UNIQUE = re.compile(r"\[(\d{1,7})\] is setting up NCCL communicator")
_UNIQUE_KEY = re.compile(r"store by key '([^']{1,60})'(?:.{0,200}?\bkeys?: ?(/?[\w/.:-]{1,200}))?")
_ENV = re.compile(r"environment variable (\w{1,80}) expected, but not set")
_BAD_ENV = re.compile(r"Invalid value for environment variable: (\w{1,100})")
_RENDEZVOUS = re.compile(r"(Rendezvous[A-Z]\w{0,30}Error)(?:: (.{1,500}))?")


class _Print(NamedTuple):
    """What one rank runs."""

    rank: int | None = None
    op: str = ""
    seq: int | None = None
    shape: str = ""
    dtype: str = ""


def _fingerprint(text: str) -> Event | None:
    sides = list(_RUNNING.finditer(text))
    if not sides:
        return None
    first, second = _print(text, sides[0], sides[1].start() if sides[1:] else len(text)), _Print()
    if sides[1:]:
        second = _print(text, sides[1], len(text))
    return FingerprintMismatch(
        rank_a=first.rank, op_a=first.op, seq_a=first.seq, shape_a=first.shape, dtype_a=first.dtype,
        rank_b=second.rank, op_b=second.op, seq_b=second.seq, shape_b=second.shape, dtype_b=second.dtype,
        aspects=text.partition("differ in the following aspects:")[2].strip()[:500], group_rank=first.rank,
    )  # fmt: skip


def _print(text: str, side: re.Match[str], end: int) -> _Print:
    body = text[side.end() : end]
    op, shape, dtype = (pattern.search(body) for pattern in (_OP, _SHAPE, _DTYPE))
    return _Print(
        int(side[1]),
        op[1] if op else side[2] or "",
        number_after(body, _SEQ),
        shape[1].strip() if shape else "",
        dtype[1].strip() if dtype else "",
    )


def _barrier(text: str) -> Event | None:
    if match := _BARRIER.search(text):
        wait = _MS.search(text, match.end())
        return MonitoredBarrierFailed(
            what="missing", ranks=number_list(match[2]), ms=int(wait[1]) if wait else None, group_rank=int(match[1])
        )
    match = _REACHED.search(text)
    return MonitoredBarrierFailed(what="rank0", group_rank=int(match[1])) if match else None


def _gloo_timeout(text: str) -> Event:
    direction = _DIRECTION.search(text)
    return GlooTimeout(direction=direction[1] if direction else "", ms=number_after(text, _MS))


def _closed(text: str) -> Event | None:
    # NCCL's own lines are another reader's; its "remote peer" stands below `Last error:`.
    # A question to the store that is cut off is no lost peer.
    if any(words in text for words in (" NCCL WARN ", " NCCL INFO ", "SocketImpl(", "remote peer", "ncclUniqueId")):
        return None
    match = _ADDRESS.search(text)
    return PeerClosed(via="gloo", peer=match[1] if match else "")


def remote_peer(text: str) -> str:
    """Host and port in NCCL's words on a lost connection, "" where they name none."""
    match = _REMOTE_PEER.search(text)
    return match[1] if match else ""


def _gloo_init(text: str) -> Event:
    event = GlooInitError(reason=text[:500].strip())
    before, _, name = text.partition("Unable to find address for: ")
    # Gloo looks an interface up among those of the host, or else a host name by the resolver.
    if before.endswith("rp != nullptr. "):
        event.hostname = name.strip()[:253]
    else:
        event.interface = name.strip()[:253]
    return event


def _gloo_who(text: str) -> Event | None:
    match = _WHO.search(text)
    return GlooInitError(size=int(match[2]), address=match[3], group_rank=int(match[1])) if match else None


def _gloo_sizes(text: str) -> Event:
    sizes = _SIZES.search(text)
    return GlooMismatch(got=int(sizes[1]), expected=int(sizes[2])) if sizes else GlooMismatch()


def _store(what: str, text: str) -> StoreError:
    return StoreError(what=what, reason=text[-400:].strip())


_NO_SUCH_FAMILY = "(errno: 97"
_DEAD_NODE = "Detected dead node '"


def _unreached(text: str) -> Event | None:
    if _NO_SUCH_FAMILY in text:
        return None  # it tries the next address
    event = _store("connect_failed", text)
    if match := _CONNECT_FAILED.search(text):
        event.server, event.port = match[1], int(match[2])
    return event


def _clients_missing(text: str) -> Event:
    event = _store("clients_missing", text)
    if match := _JOINED.search(text):
        event.seconds, event.joined, event.expected = int(match[1]), int(match[2]), int(match[3])
    return event


def _key_timeout(text: str) -> Event:
    event = _store("key_timeout", text)
    if match := _KEYS.search(text):
        event.ms, event.key = int(match[1]), match[2]
    return event


def _wait_timeout(text: str) -> Event:
    event = _store("wait_timeout", text)
    event.ms = number_after(text, _WAITED)
    return event


def _port_taken(pattern: re.Pattern[str], text: str) -> Event:
    event = _store("port_in_use", text)
    event.port = number_after(text, pattern)
    return event


def _not_listening(text: str) -> Event | None:
    taken = "Address already in use" in text and "EADDRINUSE" not in text
    return _port_taken(BOUND, text) if taken else None


def _connect_timeout(text: str) -> Event:
    event = StoreError(what="connect_timeout", ms=number_after(text, _MS))
    if match := _CONNECT.search(text):
        event.server, event.port = match[1], int(match[2])
    return event


def _store_barrier(text: str) -> Event | None:
    if passed := _STORE_PASSED.search(text):
        return StorePassed(key=passed[2], group_rank=int(passed[1]))
    match = _STORE_BARRIER.search(text)
    if match is None:
        return None
    return StoreError(
        what="barrier_timeout" if "Timed out" in text else "barrier_wait",
        key=match[2],
        world_size=int(match[3]),
        joined=int(match[4]),
        timeout=match[5],
        group_rank=int(match[1]),
    )


def _member(text: str) -> Event | None:
    match = _MEMBER.search(text)
    return MemberBegins(size=int(match[2]), rank=int(match[1])) if match else None


def _unique_id(text: str) -> Event:
    event = _store("unique_id", text)
    rank = number_after(text, _UNIQUE)
    event.group_rank = rank if rank is not None else group_rank_of(text)
    if key := _UNIQUE_KEY.search(text):
        event.key = key[2] or key[1]
    return event


def _rendezvous(text: str) -> Event | None:
    if match := _RENDEZVOUS.search(text):
        return RendezvousError(error=match[1], reason=(match[2] or "").strip('", '))
    if "no heartbeat" in text or _DEAD_NODE in text:
        return RendezvousError(error=NO_HEARTBEAT, reason=text[:500].strip())
    return None


def _init(what: str, pattern: re.Pattern[str] | None = None) -> Read:
    def read(text: str) -> Event:
        match = pattern.search(text) if pattern else None
        return InitError(what=what, reason=text[:400].strip(), name=match[1] if match else "")

    return read


MATCHERS: tuple[Matcher, ...] = (
    ("is running collective: ", _fingerprint),
    ("is running inconsistent collective: ", _fingerprint),
    ("monitoredBarrier", _barrier),
    ("Timed out waiting", lambda text: _gloo_timeout(text) if "operation to complete" in text else None),
    ("Application timeout caused pair closure", _gloo_timeout),
    ("Connection closed by", _closed),
    ("Connection reset by peer", _closed),
    ("connectFullMesh failed", _gloo_init),
    ("Unable to find address for: ", _gloo_init),
    ("(rank=", _gloo_who),
    ("Received data size doesn't match expected size", _gloo_sizes),
    ("client socket has timed out", _connect_timeout),
    ("client socket has failed to connect", _unreached),
    (_DEAD_NODE, _rendezvous),
    ("waiting for clients", _clients_missing),
    ("wait timeout after", _key_timeout),
    ("Socket Timeout", partial(_store, "socket_timeout")),
    ("EADDRINUSE", partial(_port_taken, _PORT)),
    ("failed to listen on any local network address", _not_listening),
    ("Connection was likely closed", partial(_store, "closed")),
    ("sendBytes failed", partial(_store, "closed")),
    ("(gai error", partial(_store, "dns")),
    ('Failed to check the "should dump" flag', partial(_store, "closed")),
    ("waitForInput: ", _wait_timeout),
    ("GLOBAL_RANK: ", _member),
    ("distributed processes registered", lambda _: MembersMet()),
    ("store_based_barrier", _store_barrier),
    ("retrieving ncclUniqueId from", _unique_id),
    ("endezvous", _rendezvous),
    ("expected, but not set", _init("env_missing", _ENV)),
    ("doesn't have NCCL built in", _init("no_nccl")),
    ("Expected timeout argument to be of type datetime", _init("bad_timeout")),
    ("Invalid value for environment variable", _init("bad_env", _BAD_ENV)),
)
