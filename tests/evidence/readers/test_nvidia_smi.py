"""The reader of nvidia-smi: recorded reports, and the shapes of other drivers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import cost
from whichrank.evidence.readers import nvidia_smi
from whichrank.model.contracts import Item, Reading
from whichrank.model.errors import UnreadableError
from whichrank.records.hardware import GPU_KEYS, GpuState, GpuTopology, address

SAMPLES = Path(__file__).parents[2] / "samples" / "hardware"
TEXT, XML = SAMPLES / "nvidia-smi-q.txt", SAMPLES / "nvidia-smi-q.xml"


def read(path: Path, label: str | None = None) -> Reading:
    return nvidia_smi.read(Item(path, label or path.name, path.stat().st_size, 0))


def write(folder: Path, text: str | bytes, label: str = "nvidia-smi.txt") -> Reading:
    path = folder / "evidence"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert nvidia_smi.sniff(path.read_bytes()[:4096], label), text[:200]
    return read(path, label)


def gpus(reading: Reading) -> list[GpuState]:
    return [record for record in reading.records if isinstance(record, GpuState)]


@pytest.mark.parametrize("path", [TEXT, XML])
def test_a_recorded_report(path):
    assert nvidia_smi.sniff(path.read_bytes()[:4096], path.name)
    reading = read(path, f"node7/{path.name}")
    (gpu,) = gpus(reading)
    assert (reading.quality, reading.note) == ("complete", "")
    assert (gpu.host, gpu.index, gpu.bus_id) == ("node7", 0, "00000000:00:06.0")
    assert (gpu.driver, gpu.cuda, gpu.taken_ns) == ("580.159.04", "13.0", 1794700925 * 10**9)
    assert gpu.uuid == "GPU-7d4a6e84-28a5-34ce-cd98-1d0fa3ebe495"
    assert gpu.unread == {}
    assert set(gpu.values) <= set(GPU_KEYS)
    told = {
        "name": "NVIDIA H200", "ecc_mode": "Enabled", "ecc_unc_volatile": "0", "ecc_cor_aggregate": "0",
        "remap_pending": "No", "remap_failure": "No", "sram_threshold": "No", "temperature": "36",
        "temperature_margin": "51", "pcie_gen": "5", "pcie_gen_max": "5", "pcie_width": "16", "pcie_width_max": "16",
        "sm_clock": "345", "sm_clock_max": "1980", "reason_idle": "Active", "reason_hw_thermal": "Not Active",
        "slowed_hw_thermal": "0", "slowed_power_brake": "0", "power_limit": "700.00", "power_default": "700.00",
        "recovery_action": "None", "mig": "Disabled", "persistence": "Enabled", "pstate": "P0",
    }  # fmt: skip
    xml_has_no = {"pstate"} if path is XML else set()
    assert {key: gpu.values.get(key) for key in told if key not in xml_has_no} == {
        key: value for key, value in told.items() if key not in xml_has_no
    }
    assert "fabric_state" not in gpu.values  # N/A: there is none


def test_text_and_xml_say_the_same():
    (text,), (xml,) = gpus(read(TEXT)), gpus(read(XML))
    moving = {"power_draw"}
    shared = set(text.values) & set(xml.values) - moving
    assert len(shared) > 30
    assert {key: text.values[key] for key in shared} == {key: xml.values[key] for key in shared}


def test_counters_of_all_units_are_summed(tmp_path):
    text = TEXT.read_text()
    text = text.replace(
        "SRAM Uncorrectable Parity                  : 0", "SRAM Uncorrectable Parity                  : 2", 1
    )
    text = text.replace(
        "DRAM Uncorrectable                         : 0", "DRAM Uncorrectable                         : 3", 1
    )
    (gpu,) = gpus(write(tmp_path, text))
    assert (gpu.number("ecc_unc_volatile"), gpu.number("ecc_unc_aggregate")) == (5, 0)


def test_what_could_not_be_read_is_kept_apart(tmp_path):
    text = TEXT.read_text().replace(": 36 C", ": Unknown Error").replace(": P0", ": ERR!")
    reading = write(tmp_path, text)
    (gpu,) = gpus(reading)
    assert gpu.unread == {"temperature": "Unknown Error", "pstate": "ERR!"}
    assert "temperature" not in gpu.values
    assert (reading.quality, reading.note) == ("partial", "1 GPU(s) with values that could not be read")


OLD_XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <timestamp>Sun Nov 15 00:02:05 2026</timestamp>
  <driver_version>535.129.03</driver_version>
  <gpu id="00000000:18:00.0">
    <product_name>NVIDIA A100-SXM4-80GB</product_name>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown>
      <clocks_throttle_reason_hw_thermal_slowdown>Active</clocks_throttle_reason_hw_thermal_slowdown>
    </clocks_throttle_reasons>
    <gpu_power_readings><power_state>P0</power_state><power_draw>67.03 W</power_draw></gpu_power_readings>
    <ecc_errors>
      <volatile><sram_correctable>1</sram_correctable><sram_uncorrectable>0</sram_uncorrectable>
        <dram_correctable>4</dram_correctable><dram_uncorrectable>7</dram_uncorrectable></volatile>
      <aggregate><sram_uncorrectable>0</sram_uncorrectable><dram_uncorrectable>9</dram_uncorrectable></aggregate>
    </ecc_errors>
    <remapped_rows>N/A</remapped_rows>
    <gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>
    <temperature><gpu_temp>88 C</gpu_temp><gpu_temp_slow_threshold>89 C</gpu_temp_slow_threshold></temperature>
    <fabric><state>In Progress</state><status>N/A</status></fabric>
    <processes><process_info><pid>4711</pid><type>C</type></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""


def test_xml_of_an_older_driver(tmp_path):
    (gpu,) = gpus(write(tmp_path, OLD_XML, "smi.xml"))
    assert (gpu.driver, gpu.index, gpu.pids, gpu.line) == ("535.129.03", 0, (4711,), 6)
    told = {
        "ecc_unc_volatile": "7", "ecc_cor_volatile": "5", "ecc_unc_aggregate": "9", "power_draw": "67.03",
        "reason_hw_thermal": "Active", "reason_hw_slowdown": "Active", "reason_idle": "Not Active",
        "temperature": "88", "temperature_slowdown": "89", "fabric_state": "In Progress", "reset_required": "Yes",
    }  # fmt: skip
    assert {key: gpu.values.get(key) for key in told} == told
    assert "remap_pending" not in gpu.values


def test_xml_that_is_cut_and_xml_that_is_hostile(tmp_path):
    reading = write(tmp_path, OLD_XML[:900], "smi.xml")
    assert (len(reading.records), reading.quality, reading.note) == (1, "partial", "the report is cut")
    entity = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa">]><nvidia_smi_log><gpu id="1">&a;</gpu></nvidia_smi_log>'
    (gpu,) = gpus(write(tmp_path, entity, "smi.xml"))  # the declaration above the root is not read at all
    assert gpu.values == {}
    deep = "<nvidia_smi_log>" + "<a>" * 2000
    with pytest.raises(UnreadableError):
        write(tmp_path, deep, "smi.xml")


TABLE = """\
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.129.03             Driver Version: 535.129.03   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|=========================================+======================+======================|
|   0  NVIDIA H100 80GB HBM3          On  | 00000000:18:00.0 Off |                    3 |
| N/A   30C    P0              69W / 700W |      2MiB / 81559MiB |     97%      Default |
|                                         |                      |             Disabled |
|   1  NVIDIA H100 80GB HBM3          On  | 00000000:2A:00.0 Off |                 ERR! |
|ERR!   ERR! ERR!            ERR! / ERR!  |      0MiB / 81559MiB |    ERR!      Default |
|                                         |                      |                 ERR! |
|   2  NVIDIA GeForce ...  Off  | 00000000:3A:00.0  On |                  N/A |
| 41%   61C    P2   140W / 350W |   9000MiB / 24576MiB |     55%      Default |
+-----------------------------------------+----------------------+----------------------+
|    0   N/A  N/A      1234      C   python                                     1234MiB |
|    0   N/A  N/A      1235      C   /usr/bin/python3                           1234MiB |
"""


def test_the_plain_table(tmp_path):
    good, bad, desk = gpus(write(tmp_path, TABLE))
    assert (good.index, good.bus_id, good.driver, good.cuda) == (0, "00000000:18:00.0", "535.129.03", "12.2")
    assert (good.number("ecc_unc_volatile"), good.number("temperature"), good.number("utilization")) == (3, 30, 97)
    assert (good.number("power_draw"), good.number("power_limit"), good.pids) == (69, 700, (1234, 1235))
    assert (bad.trouble, bad.unread["temperature"], bad.unread["ecc_unc_volatile"]) == ("ERR!", "ERR!", "ERR!")
    assert (desk.number("temperature"), desk.values["pstate"], desk.number("memory_used")) == (61, "P2", 9000)
    assert "ecc_unc_volatile" not in desk.values


HANDLE = "Unable to determine the device handle for "


@pytest.mark.parametrize(
    ("line", "bus_id", "index", "words"),
    [
        (HANDLE + "GPU 0000:3C:00.0: GPU is lost.  Reboot the system to recover this GPU",
         "0000:3C:00.0", None, "GPU is lost"),
        (HANDLE + "GPU0000:3B:00.0: Unknown Error", "0000:3B:00.0", None, "Unknown Error"),
        (HANDLE + "GPU3: 0000:41:00.0: Unknown Error", "0000:41:00.0", 3, "Unknown Error"),
    ],
)  # fmt: skip
def test_words_instead_of_an_answer(tmp_path, line, bus_id, index, words):
    reading = write(tmp_path, line + "\n", "nvidia-smi-q.txt")
    (gpu,) = gpus(reading)
    assert (gpu.bus_id, gpu.index, words in gpu.trouble) == (bus_id, index, True)
    assert reading.quality == "partial"


def test_a_host_without_an_answer_is_not_healthy(tmp_path):
    text = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
    reading = write(tmp_path, text, "nvidia-smi.txt")
    assert (reading.records, reading.quality) == ([], "unusable")
    assert "couldn't communicate" in reading.note


CSV = """\
index, uuid, pci.bus_id, ecc.errors.uncorrected.volatile.total, clocks_throttle_reasons.active, temperature.gpu, \
clocks.current.sm [MHz], pcie.link.width.current, pcie.link.width.max, fabric.state, driver_version
0, GPU-7e384753-0000-0000-0000-000000000000, 00000000:00:06.0, 0, 0x0000000000000040, 38, 1980 MHz, 8, 16, N/A, 580.1
1, GPU-7e384753-0000-0000-0000-000000000001, 00000000:00:07.0, [Unknown Error], [N/A], [GPU is lost], \
345 MHz, 16, 16, [N/A], 580.1
"""


def test_a_query_with_its_header(tmp_path):
    good, lost = gpus(write(tmp_path, CSV, "gpus.csv"))
    assert (good.index, good.driver, good.number("sm_clock"), good.number("pcie_width")) == (0, "580.1", 1980, 8)
    assert (good.is_yes("reason_hw_thermal"), good.is_yes("reason_idle")) == (True, False)
    assert lost.unread == {"ecc_unc_volatile": "[Unknown Error]", "temperature": "[GPU is lost]"}
    assert "reasons" not in lost.values


def test_a_query_without_its_header(tmp_path):
    rows = CSV.split("\n", 1)[1].replace(" MHz", "")
    reading = write(tmp_path, rows, "gpus.csv")
    assert [(gpu.uuid is not None, gpu.bus_id, gpu.values) for gpu in gpus(reading)] == [
        (True, "00000000:00:06.0", {}), (True, "00000000:00:07.0", {}),
    ]  # fmt: skip
    assert reading.note.startswith("rows without a header")
    assert gpus(reading)[1].trouble == "[Unknown Error]"
    command = "$ nvidia-smi --query-gpu=index,temperature.gpu --format=csv,noheader,nounits\n0, 38\n1, 41\n"
    assert [gpu.number("temperature") for gpu in gpus(write(tmp_path, command))] == [38, 41]


def test_links_and_topology(tmp_path):
    text = (
        "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-5269b708-3d67-bed8-bd90-92a6b1f30d3c)\n\t Link 0: 25 GB/s\n"
        "\t Link 3: <inactive>\nGPU 1: NVIDIA GB300\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 7\n"
    )
    first, second = gpus(write(tmp_path, text))
    assert [(link.link, link.rate, link.active) for link in first.links] == [(0, 25.0, True), (3, None, False)]
    assert second.links[0].counters == {"replay errors": 0, "recovery errors": 7}
    topology = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\nGPU0\t X \tNV18\tPIX\t0-55\t0\n"
        "GPU1\tNV18\t X \tSYS\t0-55\t0\nNIC0\tPIX\tSYS\t X \t\t\n\nNIC Legend:\n\n  NIC0: mlx5_0\n"
    )
    (matrix,) = write(tmp_path, topology).records
    assert isinstance(matrix, GpuTopology)
    assert (matrix.cells["GPU0", "GPU1"], matrix.cells["GPU1", "NIC0"]) == ("NV18", "SYS")
    assert matrix.nics == {"NIC0": "mlx5_0"}


def test_addresses_of_all_programs_agree():
    assert {address(text) for text in ("0000:17:00.0", "PCI:0000:17:00", "00000000:17:00.0", "17000", "17:00.0")} == {
        0x17000
    }
    assert address("60") == address("00000000:00:06.0")
    assert address("GPU-7e384753") is None
    assert address("") is None


def test_what_is_not_of_nvidia_smi():
    assert not nvidia_smi.sniff(b"epoch, loss\n1, 0.5\n", "metrics.csv")
    assert not nvidia_smi.sniff(b"<html></html>", "page.xml")
    assert not nvidia_smi.sniff(b"node7:1:1 [0] NCCL INFO GPU is lost\n", "nccl.log")


def test_long_lines_take_linear_time(tmp_path):
    pieces = ("| 0  NVIDIA" + " " * 9000 + "|", "GPU 0: " + "a " * 8000, "|" * 16000, "x, " * 6000, " : " * 5000)
    with cost.at_most(4):
        write(tmp_path, TABLE + "\n".join(pieces * 40))
        write(tmp_path, TEXT.read_text() + "\n".join(pieces * 40))


@given(st.integers(0, 14000), st.binary(max_size=200), st.sampled_from(["text", "xml", "table", "csv"]))
def test_survives_cuts_and_noise(tmp_path_factory, cut, noise, kind):
    whole = {"text": TEXT.read_bytes(), "xml": XML.read_bytes(), "table": TABLE.encode(), "csv": CSV.encode()}[kind]
    path = tmp_path_factory.mktemp("fuzz") / "evidence"
    path.write_bytes(whole[:cut] + noise + whole[cut + len(noise) :])
    try:
        reading = read(path)
    except UnreadableError:
        return
    for gpu in gpus(reading):
        assert set(gpu.values) | set(gpu.unread) <= set(GPU_KEYS)


def test_a_table_of_several_hosts_below_a_comment(tmp_path):
    states = gpus(
        write(
            tmp_path,
            "# every 60 s, all nodes: timestamp, host, index, temperature.gpu, clocks.sm\n"
            "2025/07/02 14:00:00, hpc21, 0, 60, 1980 MHz\n2025/07/02 14:00:00, hpc23, 3, 88, 540 MHz\n",
            "gpus.csv",
        )
    )
    assert [(s.host, s.index, s.values["sm_clock"]) for s in states] == [("hpc21", 0, "1980"), ("hpc23", 3, "540")]


def test_a_table_without_spaces(tmp_path):
    text = "node,index,pci.bus_id,pcie.link.width.current\na40-01,0,00000000:01:00.0,16\na40-03,3,00000000:61:00.0,4\n"
    assert nvidia_smi.sniff(text.encode(), "gpus.csv")
    assert [(s.host, s.values["pcie_width"]) for s in gpus(write(tmp_path, text))] == [
        ("a40-01", "16"),
        ("a40-03", "4"),
    ]


def test_rows_behind_the_names_of_hosts_below_the_command(tmp_path):
    text = "# nvidia-smi --query-gpu=index,clocks.sm,temperature.gpu\npx-1: 0, 1785 MHz, 61\npx-4: 3, 690 MHz, 88\n"
    assert [(s.host, s.index, s.values["sm_clock"]) for s in gpus(write(tmp_path, text, "clocks.txt"))] == [
        ("px-1", 0, "1785"),
        ("px-4", 3, "690"),
    ]
    (alone,) = gpus(write(tmp_path, "# nvidia-smi --query-gpu=index,clocks.sm\n0, 1785 MHz\n", "clocks.txt"))
    assert alone.host is None
