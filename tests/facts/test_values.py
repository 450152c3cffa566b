"""How the libraries read values; the expectations are their own parsers' behaviour."""

import pytest

from whichrank.facts.variables import values as values_module
from whichrank.facts.variables.environment import catalogue, others
from whichrank.facts.variables.values import number, problem


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("NCCL_IB_DISABLE", "true", "as the number 0"),
        ("NCCL_BUFFSIZE", "4M", "becomes 4"),
        ("NCCL_IB_TIMEOUT", "022", "octal"),
        ("NCCL_IB_TIMEOUT", "40", "outside 1 to 31"),
        ("NCCL_CROSS_NIC", "5", "none of 0, 1, 2"),
        ("NCCL_P2P_LEVEL", "nvl", "capitals"),
        ("NCCL_NET_GDR_LEVEL", "close", "is ignored"),
        ("NCCL_SOCKET_FAMILY", "af_inet", "capitals"),
        ("NCCL_DEBUG", "DEBUG", "is ignored"),
        ("NCCL_DEBUG_SUBSYS", "INIT,COLLECTIVE", "'COLLECTIVE'"),
        ("NCCL_ALGO", "Rings", "'Rings'"),
        ("NCCL_PROTO", "LL64", "'LL64'"),
        ("TORCH_FR_BUFFER_SIZE", "2e3", "becomes 2"),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "4", "outside 0 to 3"),
        ("TORCH_CPP_LOG_LEVEL", "DEBUG", "is ignored"),
        ("TORCH_SHOW_CPP_STACKTRACES", "true", "only 0 and 1"),
    ],
)
def test_values_that_are_read_otherwise(name, value, word):
    found = problem(catalogue()[name], value)
    assert found is not None
    assert word in found.message
    assert not found.fatal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TORCH_FR_BUFFER_SIZE", "abc"),
        ("TORCH_FR_BUFFER_SIZE", ""),
        ("TORCH_FR_BUFFER_SIZE", "99999999999"),
        ("TORCH_FR_CPP_STACK", "on"),
        ("TORCH_NCCL_BLOCKING_WAIT", "enabled"),
        ("TORCH_DISTRIBUTED_DEBUG", "VERBOSE"),
        ("TORCH_DIST_INIT_BARRIER", "yes"),
    ],
)
def test_values_that_stop_a_job(name, value):
    found = problem(catalogue()[name], value)
    assert found is not None
    assert found.fatal


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_IB_DISABLE", "1"), ("NCCL_BUFFSIZE", "0x400000"), ("NCCL_DEBUG", "info"), ("NCCL_DEBUG", ""),
        ("NCCL_P2P_LEVEL", "SYS"), ("NCCL_P2P_LEVEL", "5"), ("NCCL_ALGO", "^NVLS"), ("NCCL_NVLS_ENABLE", "0"),
        ("NCCL_ALGO", "allreduce:tree,ring;broadcast:ring"), ("NCCL_PROTO", "simple"), ("NCCL_NET_GDR_READ", "-2"),
        ("NCCL_DEBUG_SUBSYS", "^INIT,env"), ("NCCL_LAUNCH_MODE", "parallel"), ("TORCH_FR_CPP_STACK", "Yes"),
        ("TORCH_DISTRIBUTED_DEBUG", "detail"), ("TORCH_CPP_LOG_LEVEL", "0"), ("NCCL_IB_HCA", "anything"),
        ("NCCL_INSPECTOR_ENABLE", "true"),
    ],
)  # fmt: skip
def test_values_that_are_read_as_meant(name, value):
    assert problem(catalogue()[name], value) is None


def test_words_that_the_newer_parser_takes():
    variable = catalogue()["NCCL_SET_THREAD_NAME"]
    assert problem(variable, "true", (2, 28, 9)) is not None
    assert problem(variable, "true", (2, 30, 7)) is None


@pytest.mark.parametrize(("text", "value"), [("12", 12), ("0x10", 16), ("010", 8), ("08", 0), ("-2", -2), ("abc", None),
                                             ("4M", 4), (None, None), ("9" * 5000, int("9" * 24))])  # fmt: skip
def test_numbers_as_strtoll_reads_them(text, value):
    assert number(text) == value


OTHERS = {
    "CUDA_DEVICE_MAX_CONNECTIONS": ("32", "64"),
    "CUDA_LAUNCH_BLOCKING": ("1", "true"),
    "CUDA_MODULE_LOADING": ("lazy", "late"),
    "CUBLAS_WORKSPACE_CONFIG": (":16:8:4096:2", "4096:8"),
    "OMP_NUM_THREADS": ("8,2", "0"),
    "OMP_PROC_BIND": ("spread,close", "closed"),
    "OMP_PLACES": ("{0:8},{8:8}", "core"),
    "FI_PROVIDER": ("^tcp,sockets", "rdma"),
    "FI_LOG_LEVEL": ("Warn", "verbose"),
    "UCX_NET_DEVICES": ("mlx5_0:1,eth0", "mlx5_0,mlx5_1:1"),
    "UCX_TLS": ("^rc,ud:aux,cuda_copy", "rc,cudacopy"),
    "NVIDIA_DRIVER_CAPABILITIES": ("compute,utility", "compute,gpu"),
}


@pytest.mark.parametrize(("name", "values"), OTHERS.items())
def test_values_of_other_libraries(name, values):
    right, wrong = values
    assert problem(others()[name], right) is None
    assert problem(others()[name], wrong) is not None


def test_every_variable_of_other_libraries_has_its_source_and_a_known_parser():
    for name, variable in others().items():
        assert variable.source, name
        assert name not in catalogue()
        assert variable.parser in {"", *values_module._CHECKS}, name
