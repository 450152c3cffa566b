"""The metrics that every watched job shows; those of a guard or a straggler come with one."""

from whichrank.run.monitoring.metrics import CATALOGUE

ALWAYS = {
    metric.name for metric in CATALOGUE if not metric.name.startswith(("whichrank_guard_", "whichrank_straggler_"))
}
