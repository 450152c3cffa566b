"""GPU checks on the reports of several drivers: names that changed, words in place of values, damaged reports."""

from __future__ import annotations

import pytest

from tests.preflight import trees
from whichrank.evidence.probes import Place, discover
from whichrank.flows.preflight import check as flow
from whichrank.model.preflight import Launch
from whichrank.records.inspection import HostProbes, Inspection, ProbeResult

PROBES = discover()
NEW = {"reasons": "clocks_event_reasons", "reset": "<gpu_reset_status><reset_required>{}</reset_required>"
       "<drain_and_reset_recommended>{}</drain_and_reset_recommended></gpu_reset_status>",
       "power": "gpu_power_readings", "limit": "current_power_limit",
       "fabric": "<fabric><state>{}</state><status>{}</status></fabric>"}  # fmt: skip
OLD = {"reasons": "clocks_throttle_reasons", "reset": "", "power": "power_readings", "limit": "power_limit",
       "fabric": ""}  # fmt: skip
DRIVERS = {"470.223.02": OLD, "525.105.17": OLD, "535.161.08": NEW, "550.90.07": NEW}

HEALTHY = {
    "thermal": "Not Active", "sram": "0", "reset": "No", "drain": "No", "limit": "400.00 W", "width": "16x",
    "temp": "31 C", "draw": "67.03 W", "state": "Completed", "status": "Success", "failure": "No",
}  # fmt: skip


def gpu(number, driver, **found):
    """One GPU of a report; `found` replaces what is healthy."""
    shape = DRIVERS[driver]
    told = {**HEALTHY, **found}
    reason = shape["reasons"][:-1]
    address = f"00000000:{number + 0x10:02X}:00.0"
    rows = f"<sram_uncorrectable>{told['sram']}</sram_uncorrectable><dram_uncorrectable>0</dram_uncorrectable>"
    return (
        f'<gpu id="{address}"><product_name>NVIDIA A100-SXM4-80GB</product_name>'
        f"<uuid>GPU-{number:08x}-1111-2222-3333-444444444444</uuid><minor_number>{number}</minor_number>"
        f"{shape['reset'].format(told['reset'], told['drain'])}<pci><pci_bus_id>{address}</pci_bus_id>"
        f"<pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width><current_link_width>{told['width']}"
        f"</current_link_width></link_widths></pci_gpu_link_info></pci><{shape['reasons']}><{reason}_gpu_idle>Active"
        f"</{reason}_gpu_idle><{reason}_hw_thermal_slowdown>{told['thermal']}</{reason}_hw_thermal_slowdown>"
        f"</{shape['reasons']}><ecc_errors><volatile>{rows}</volatile></ecc_errors><remapped_rows>"
        f"<remapped_row_pending>No</remapped_row_pending><remapped_row_failure>{told['failure']}</remapped_row_failure>"
        f"</remapped_rows><temperature><gpu_temp>{told['temp']}</gpu_temp><gpu_temp_slow_threshold>89 C"
        f"</gpu_temp_slow_threshold></temperature><{shape['power']}><power_draw>{told['draw']}</power_draw>"
        f"<{shape['limit']}>{told['limit']}</{shape['limit']}><default_power_limit>400.00 W</default_power_limit>"
        f"</{shape['power']}>{shape['fabric'].format(told['state'], told['status'])}</gpu>"
    )


def report(driver, found=None, count=8):
    gpus = "".join(gpu(n, driver, **(found or {}).get(n, {})) for n in range(count))
    return (
        '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
        f"<driver_version>{driver}</driver_version><attached_gpus>{count}</attached_gpus>{gpus}</nvidia_smi_log>"
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A host with eight GPUs; every test puts its own report there."""
    return trees.machine(tmp_path_factory.mktemp("host"), gpus=8, nics=0)


@pytest.fixture
def judged(root):
    def judge(text):
        (root / "commands/nvidia-smi_-q_-x").write_text(text)
        launch = Launch(ranks_per_host=8)
        values = {name: ProbeResult(name, PROBES[name].measure(Place(root, launch, {}))) for name in ("gpus", "pci")}
        return flow.judge(Inspection([HostProbes("node1", values)], launch))

    return judge


@pytest.fixture
def checks(judged):
    return lambda text: {check.check: check for check in judged(text).hosts["node1"]}


def bad(checks):
    return {name: check.why for name, check in checks.items() if check.state == "unhealthy"}


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_healthy_host_of_every_driver(checks, driver):
    assert bad(checks(report(driver))) == {}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize(
    ("found", "check", "words"),
    [
        ({"thermal": "Active"}, "gpu-clocks", "GPU 5: hardware thermal slowdown is active"),
        ({"temp": "85 C"}, "gpu-clocks", "GPU 5: only 4 C below its temperature limit"),
        ({"limit": "200.00 W"}, "gpu-clocks", "GPU 5: power limit 200 W of 400 W"),
        ({"sram": "3"}, "gpu-memory", "GPU 5: 3 uncorrectable errors since the driver was loaded"),
        ({"failure": "Yes"}, "gpu-memory", "GPU 5: a row remap failed"),
        ({"width": "8x"}, "pcie", "GPU 5: 8 of 16 lanes"),
        ({"temp": "GPU requires reset"}, "gpu-recovery", 'GPU 5: nvidia-smi answers "GPU requires reset"'),
        ({"draw": "ERR!"}, "gpu-recovery", 'GPU 5: power draw can\'t be read ("ERR!")'),
    ],
)
def test_a_fault_of_every_driver(checks, driver, found, check, words):
    assert bad(checks(report(driver, {5: found}))) == {check: words}


@pytest.mark.parametrize(
    ("found", "check", "words"),
    [
        ({"reset": "Yes"}, "gpu-recovery", "the driver says that it needs a reset"),
        ({"drain": "Yes"}, "gpu-recovery", "the driver recommends to drain the host and reset it"),
        ({"state": "In Progress", "status": "N/A"}, "fabric-manager", "fabric state In Progress"),
        ({"status": "Insufficient Resources"}, "fabric-manager", "fabric status Insufficient Resources"),
    ],
)
def test_what_only_newer_drivers_tell_with_all_gpus_named(checks, found, check, words):
    assert bad(checks(report("535.161.08", {1: found, 6: found}))) == {check: f"GPUs 1, 6: {words}"}


def test_the_gravest_comes_first(checks):
    found = {1: {"limit": "300 W"}, 4: {"thermal": "Active"}}
    assert bad(checks(report("550.90.07", found)))["gpu-clocks"] == (
        "GPU 4: hardware thermal slowdown is active; GPU 1: power limit 300 W of 400 W"
    )


def test_numbers_that_are_none(checks):
    found = {0: {"temp": "9" * 400 + " C", "draw": "1e999 W", "limit": "inf W"}}
    assert bad(checks(report("550.90.07", found))) == {}


def test_a_report_that_is_cut_accuses_no_gpu(checks):
    whole = report("550.90.07")
    told = checks(whole[: len(whole) // 2])
    assert told["gpus"].state == "unknown"
    assert "is cut" in told["gpus"].why


def test_a_driver_that_was_updated_while_it_ran(judged):
    words = "Failed to initialize NVML: Driver/library version mismatch"
    told = judged(f"{words}\nNVML library version: 535.183\n")
    finding = next(finding for finding in told.findings if finding.code == "PREH101")
    assert words in finding.message
    assert "reboot" in finding.fix[0]


def test_entities_are_not_expanded(checks):
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 9}">' for n in range(1, 12))
    text = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><nvidia_smi_log>&e11;</nvidia_smi_log>'
    assert checks(text)["gpus"].state == "unhealthy"
