"""Clues on direct copies between the GPUs of one host: that they are at fault, and by whom."""

from __future__ import annotations

from msgspec import Struct

from whichrank.timeline.case import Case
from whichrank.timeline.job_state import known_messages
from whichrank.timeline.job_state.known_messages import Seen
from whichrank.timeline.job_state.statements import Statement

_WITHIN = ("P2P", "SHM")


class Clues(Struct, frozen=True):
    """What the evidence says of copies within a host."""

    helped: list[Seen]
    """It works without them."""
    model: list[Seen]
    """GPUs of a model that has none."""
    iommu_on: list[Seen]
    iommu_off: list[Seen]
    after_boot: list[Seen]
    stalled: list[Statement]
    """The first transfer does not end."""
    virtual: list[Seen]
    """Somebody says that this is a virtual machine: there the IOMMU is always on."""
    hangs: bool
    """Somebody says that the job hangs, or it timed out: an IOMMU alone is no fault."""
    direct: bool
    """NCCL uses them."""
    tested: list[Seen]
    """A test of such copies was run, or NCCL's own test on several GPUs of one host: no training code is involved."""

    @property
    def any(self) -> bool:
        switched_on = self.iommu_on and (self.stalled or self.hangs)
        never_ends = self.stalled and self.direct and (self.model or self.virtual)
        return bool(self.helped or switched_on or self.after_boot or never_ends or (self.tested and self.hangs))


def clues(case: Case) -> Clues:
    """The clues; none where the job had made steps or spans hosts."""
    within = {t.kind.split("/")[0] for p in case.nccl for t in p.transports}
    started = bool(within & set(_WITHIN)) and not any(kind.startswith("NET") for kind in within)
    stalled = known_messages.stands_still(case) if started and not known_messages.has_run(case) else []
    return Clues(
        helped=known_messages.seen(case, "told-p2p-disable-helps"),
        model=known_messages.seen(case, "told-no-p2p-model"),
        iommu_on=known_messages.seen(case, "told-iommu-on", "acs-enabled", *(("rccl-iommu",) if stalled else ())),
        iommu_off=known_messages.seen(case, "told-iommu-off"),
        after_boot=known_messages.seen(case, "told-after-boot") if stalled else [],
        stalled=stalled,
        virtual=known_messages.seen(case, "told-virtual"),
        hangs=bool(known_messages.stands_still(case)),
        direct="P2P" in within,
        tested=known_messages.seen(case, "p2p-test-table", "nccl-tests-one-host"),
    )


def signs(found: Clues) -> list[Statement]:
    """All of it as proof, the strongest first."""
    seen = (*found.helped, *found.iommu_on, *found.model, *found.after_boot, *found.virtual, *found.tested)
    return [*(s.sign for s in seen), *found.stalled]
