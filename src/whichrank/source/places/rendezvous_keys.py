"""Keys of `--rdzv-conf` that the rendezvous does not read: it takes any, and says nothing of those that it ignores."""

from __future__ import annotations

import re
from collections.abc import Iterator

from whichrank.records.launches import Told
from whichrank.records.settings import UNKNOWN, Clash

# What torch/distributed/elastic/rendezvous reads; torchrun itself adds rank and timeout.
_DYNAMIC = frozenset({
    "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout", "keep_alive_interval",
    "keep_alive_max_attempt", "read_timeout",
})  # fmt: skip
_READ = {
    "c10d": _DYNAMIC | {"is_host", "store_type", "rank"},
    "etcd-v2": _DYNAMIC | {"protocol", "ssl_cert", "ssl_cert_key", "ca_cert", "rank"},
    "static": frozenset({"timeout", "rank"}),
}
_MOST_KEYS = 32


def unread(conf: Told | None, backend: Told | None) -> Iterator[Clash]:
    """The keys of one launch; only for backends of PyTorch itself, and not where a run would tell the text."""
    name = backend.text if backend is not None else "static"
    if conf is None or name not in _READ or UNKNOWN in conf.text:
        return
    for part in conf.text.strip("\"'").split(",")[:_MOST_KEYS]:
        key = part.partition("=")[0].strip()
        if not re.fullmatch(r"[A-Za-z_]\w{0,60}", key) or key in _READ[name]:
            continue
        why = f"the {name} rendezvous does not read {key}"
        if key == "timeout":
            fix = "Write join_timeout=SECONDS, the time that hosts wait for each other (600 by default)."
        else:
            fix = f"Keys that it reads: {', '.join(sorted(_READ[name] - {'rank'}))}."
        yield Clash(conf.name, conf.ref, why, fix)
