"""ACS or the IOMMU sends peer-to-peer traffic through the root complex.

What it finds: PCIe switches above GPUs or RDMA adapters whose access control redirects requests; an IOMMU that
translates on bare metal.

Why it happens: both are on by default for virtualisation. Peer-to-peer copies and GPUDirect RDMA then are slow, hang,
or deliver wrong data.

How it decides: by the ACS control register of the bridges on the way of a GPU or adapter (only root may read it), and
by the IOMMU's groups. In a virtual machine both must stay on and are not judged.

Example: `ACS redirects on 0000:15:01.0, above GPU 0000:17:00.0`

Fix: disable ACS on these bridges (setpci, or the BIOS) and boot with iommu=pt.

Limits: without root the registers can't be read: then it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whichrank.model.preflight import Check, Launch, healthy, unhealthy, unknown
from whichrank.records.inspection import HostProbes, items

CODE = "PREH109"
CAUSE = "p2p-acs-iommu"
CHECK = "acs-iommu"
PROBE = "pci"
FIX = ("Disable ACS on these bridges (BIOS or setpci) and boot with iommu=pt, on bare metal only.",)


def judge(values: Mapping[str, Any], host: HostProbes, launch: Launch) -> Check | None:  # noqa: ARG001
    devices = items(values, "devices")
    gpus = [d for d in devices if d.get("kind") == "gpu"]
    partners = [*gpus, *(d for d in devices if d.get("rdma"))]
    if not gpus or len(partners) < 2:
        return None  # nobody to talk to directly
    if values.get("virtual"):
        return healthy("virtual machine", "ACS must stay on in a virtual machine")
    redirecting = {str(bridge.get("address")) for bridge in items(values, "bridges") if bridge.get("acs")}
    for device in partners:
        above = [bridge for bridge in device.get("path") or [] if bridge in redirecting]
        # The root port alone does not divert traffic between two devices below one switch.
        if above and any(above[-1] in (other.get("path") or []) for other in partners if other is not device):
            words = f"ACS redirects on {above[-1]}, above {device.get('kind')} {device.get('address')}"
            return unhealthy("ACS redirects", words, severity="warning")
    if values.get("iommu_translates"):
        return unhealthy("IOMMU translates", "the IOMMU translates DMA on bare metal (no iommu=pt)", severity="warning")
    if not values.get("acs_readable"):
        return unknown("only root can read the ACS registers of the bridges")
    return healthy("no redirect")
