"""Faults of the network of one host: what happens to its cable while the job runs."""

WORKLOAD = "wide"
NEEDS = ("namespaces",)
LEAST_WORLD = 3
BACKENDS = ("gloo",)

_STOPS = {"CATEGORY": "hang"}
_SLOWS = {"CATEGORY": "slow", "ENDING": "running"}
ROWS = {
    "network_drop": {
        "SUMMARY": "Between one host and all others every packet is dropped, while the job runs.",
        "CAUSE": "firewall", "HAPPENS": ("drop", {}), **_STOPS,
    },
    "network_one_way": {
        "SUMMARY": "What one host sends does not arrive any more; what is sent to it does.",
        "CAUSE": "firewall", "HAPPENS": ("one_way", {}), **_STOPS,
    },
    "link_down": {
        "SUMMARY": "The cable of one host is pulled at the switch while the job runs.",
        "CAUSE": "host-lost", "ACCEPT": ("ib-link-flap",), "HAPPENS": ("link_down", {}), **_STOPS,
    },
    "link_flap": {
        "SUMMARY": "The link of one host goes down for two seconds and comes back; the job goes on.",
        "CAUSE": "ib-link-flap", "ACCEPT": ("packet-loss",), "HAPPENS": ("flap", {"seconds": 2.0}), **_SLOWS,
    },
    "network_delay": {
        "SUMMARY": "The way to and from one host takes 10 ms longer each.",
        "CAUSE": "slow-network", "HAPPENS": ("delay", {"milliseconds": 10}), "RELAYED": True, **_SLOWS,
    },
    "packet_loss": {
        "SUMMARY": "One host loses five per cent of its packets, in both directions.",
        "CAUSE": "packet-loss", "HAPPENS": ("lose", {"percent": 5}), **_SLOWS,
    },
    "rate_limit": {
        "SUMMARY": "The cable of one host carries 50 Mbit/s and no more.",
        "CAUSE": "slow-network", "HAPPENS": ("limit", {"rate": "50mbit"}), **_SLOWS,
    },
}  # fmt: skip
HAPPENS = ("", {})
RELAYED = False


def launch(setup):
    from whichrank.lab.hosts import host_number, spread

    spread(setup, relayed=frozenset({host_number(setup.plan, setup.plan.rank)} if RELAYED else ()))


def outside(job):
    from whichrank.lab import wires
    from whichrank.lab.hosts import strike

    what, how = HAPPENS
    strike(job, getattr(wires, what), **how)


def culprits(plan):
    from whichrank.lab.hosts import ranks_beside

    return ranks_beside(plan, plan.rank)
