"""Lines of communication that failed: DETAIL checks, Gloo, NCCL's error classes, store and rendezvous."""

from __future__ import annotations

import re

from whichrank.evidence.readers.torch_output.found import Found, Matcher, Read, group_of, number_list
from whichrank.facts.shapes import BOUND
from whichrank.records.log import Value

# Early versions print one side only; an operation without tensors may stand there by its bare name.
_RUNNING = re.compile(
    r"Rank (\d{1,7}) is running (?:inconsistent )?collective: (?:CollectiveFingerPrint\(|(_?[A-Z][A-Z0-9_]{2,40})\b)"
)
_PRINT = {
    "seq": re.compile(r"SequenceNumber=(\d{1,18})"),
    "op": re.compile(r"OpType=(\w{1,64})"),
    "shape": re.compile(r"TensorShape=\[([\d, ]{0,2000})\]"),
    "dtype": re.compile(r"TensorDtypes=([\w, ]{1,200}?)(?:, TensorDevice|\)|$)"),
}
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
_ENV = re.compile(r"environment variable (\w{1,80}) expected, but not set")
_BAD_ENV = re.compile(r"Invalid value for environment variable: (\w{1,100})")
_RENDEZVOUS = re.compile(r"(Rendezvous[A-Z]\w{0,30}Error)(?:: (.{1,500}))?")


def _fingerprint(text: str) -> Found | None:
    sides = list(_RUNNING.finditer(text))
    if not sides:
        return None
    data: dict[str, Value] = {}
    for name, side, end in zip("ab", sides[:2], [m.start() for m in sides[1:2]] + [len(text)], strict=False):
        body = text[side.end() : end]
        data[f"rank_{name}"] = int(side[1])
        if side[2]:
            data[f"op_{name}"] = side[2]
        for key, pattern in _PRINT.items():
            if match := pattern.search(body):
                data[f"{key}_{name}"] = int(match[1]) if key == "seq" else match[1].strip()
    data["aspects"] = text.partition("differ in the following aspects:")[2].strip()[:500]
    return Found("fingerprint_mismatch", data, group_rank=int(sides[0][1]))


def _barrier(text: str) -> Found | None:
    if match := _BARRIER.search(text):
        data: dict[str, Value] = {"what": "missing", "ranks": number_list(match[2])}
        if wait := _MS.search(text, match.end()):
            data["ms"] = int(wait[1])
        return Found("monitored_barrier_failed", data, group_rank=int(match[1]))
    if match := _REACHED.search(text):
        return Found("monitored_barrier_failed", {"what": "rank0"}, group_rank=int(match[1]))
    return None


def _gloo_timeout(text: str) -> Found:
    data: dict[str, Value] = {}
    if direction := _DIRECTION.search(text):
        data["direction"] = direction[1]
    if wait := _MS.search(text):
        data["ms"] = int(wait[1])
    return Found("gloo_timeout", data)


def _closed(text: str) -> Found | None:
    # NCCL's own lines are another reader's; its "remote peer" stands below `Last error:`.
    # A question to the store that is cut off is no lost peer.
    if any(words in text for words in (" NCCL WARN ", " NCCL INFO ", "SocketImpl(", "remote peer", "ncclUniqueId")):
        return None
    data: dict[str, Value] = {"via": "gloo"}
    if match := _ADDRESS.search(text):
        data["peer"] = match[1]
    return Found("peer_closed", data)


def remote_peer(text: str) -> str:
    """Host and port in NCCL's words on a lost connection, "" where they name none."""
    match = _REMOTE_PEER.search(text)
    return match[1] if match else ""


def _gloo_init(text: str) -> Found:
    data: dict[str, Value] = {"reason": text[:500].strip()}
    before, _, name = text.partition("Unable to find address for: ")
    if name:
        # Gloo looks an interface up among those of the host, or else a host name by the resolver.
        data["hostname" if before.endswith("rp != nullptr. ") else "interface"] = name.strip()[:253]
    return Found("gloo_init_error", data)


def _gloo_who(text: str) -> Found | None:
    match = _WHO.search(text)
    if match is None:
        return None
    return Found("gloo_init_error", {"size": int(match[2]), "address": match[3]}, group_rank=int(match[1]))


def _gloo_sizes(text: str) -> Found:
    sizes = _SIZES.search(text)
    return Found("gloo_mismatch", {"got": int(sizes[1]), "expected": int(sizes[2])} if sizes else {})


def _store(what: str, pattern: re.Pattern[str] | None = None, *keys: str) -> Read:
    def read(text: str) -> Found:
        data: dict[str, Value] = {"what": what, "reason": text[-400:].strip()}
        match = pattern.search(text) if pattern else None
        for key, value in zip(keys, match.groups() if match else (), strict=False):
            data[key] = int(value) if value.isdecimal() else value
        return Found("store_error", data)

    return read


def _not_listening(text: str) -> Found | None:
    if "EADDRINUSE" in text or "Address already in use" not in text:
        return None
    return _store("port_in_use", BOUND, "port")(text)


def _connect_timeout(text: str) -> Found:
    data: dict[str, Value] = {"what": "connect_timeout"}
    if match := _CONNECT.search(text):
        data |= {"host": match[1], "port": int(match[2])}
    if wait := _MS.search(text):
        data["ms"] = int(wait[1])
    return Found("store_error", data)


def _store_barrier(text: str) -> Found | None:
    if passed := _STORE_PASSED.search(text):
        return Found("store_passed", {"key": passed[2]}, group_rank=int(passed[1]))
    match = _STORE_BARRIER.search(text)
    if match is None:
        return None
    data: dict[str, Value] = {
        "what": "barrier_timeout" if "Timed out" in text else "barrier_wait",
        "key": match[2],
        "world_size": int(match[3]),
        "joined": int(match[4]),
        "timeout": match[5],
    }
    return Found("store_error", data, group_rank=int(match[1]))


def _member(text: str) -> Found | None:
    match = _MEMBER.search(text)
    return Found("member_begins", {"size": int(match[2])}, rank=int(match[1])) if match else None


def _unique_id(text: str) -> Found:
    rank = _UNIQUE.search(text)
    data: dict[str, Value] = {"what": "unique_id", "reason": text[-400:].strip()}
    return Found("store_error", data, group_rank=int(rank[1]) if rank else group_of(text)[1])


def _rendezvous(text: str) -> Found | None:
    if match := _RENDEZVOUS.search(text):
        return Found("rendezvous_error", {"class": match[1], "reason": (match[2] or "").strip('", ')})
    if "no heartbeat" in text:
        return Found("rendezvous_error", {"class": "no_heartbeat", "reason": text[:500].strip()})
    return None


def _init(what: str, pattern: re.Pattern[str] | None = None) -> Read:
    def read(text: str) -> Found:
        data: dict[str, Value] = {"what": what, "reason": text[:400].strip()}
        if pattern and (match := pattern.search(text)):
            data["name"] = match[1]
        return Found("init_error", data)

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
    ("client socket has failed to connect", _store("connect_failed", _CONNECT_FAILED, "host", "port")),
    ("waiting for clients", _store("clients_missing", _JOINED, "seconds", "joined", "expected")),
    ("wait timeout after", _store("key_timeout", _KEYS, "ms", "key")),
    ("Socket Timeout", _store("socket_timeout")),
    ("EADDRINUSE", _store("port_in_use", _PORT, "port")),
    ("failed to listen on any local network address", _not_listening),
    ("Connection was likely closed", _store("closed")),
    ("sendBytes failed", _store("closed")),
    ("(gai error", _store("dns")),
    ('Failed to check the "should dump" flag', _store("closed")),
    ("waitForInput: ", _store("wait_timeout", _WAITED, "ms")),
    ("GLOBAL_RANK: ", _member),
    ("distributed processes registered", lambda _: Found("members_met")),
    ("store_based_barrier", _store_barrier),
    ("retrieving ncclUniqueId from", _unique_id),
    ("endezvous", _rendezvous),
    ("expected, but not set", _init("env_missing", _ENV)),
    ("doesn't have NCCL built in", _init("no_nccl")),
    ("Expected timeout argument to be of type datetime", _init("bad_timeout")),
    ("Invalid value for environment variable", _init("bad_env", _BAD_ENV)),
)
