"""A signal in the midst of a log line: Python's logging then prints a traceback and the stack of its caller."""

from __future__ import annotations

from pathlib import Path

from whichrank.flows.diagnose.pipeline import diagnose

# As torchrun 2.13 printed it when Slurm sent SIGTERM twice; paths shortened.
SAID = """\
slurmstepd-n1: error: *** JOB 8 ON n1 CANCELLED AT 2026-11-15T06:33:24 DUE TO TIME LIMIT ***
W1115 06:33:24.613000 17839 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers
--- Logging error ---
Traceback (most recent call last):
  File "/venv/torch/distributed/elastic/agent/server/api.py", line 923, in _invoke_run
    time.sleep(monitor_interval)
  File "/venv/torch/distributed/elastic/multiprocessing/api.py", line 86, in _terminate_process_handler
    raise SignalException(f"Process {os.getpid()} got signal: {sigval}", sigval=sigval)
torch.distributed.elastic.multiprocessing.api.SignalException: Process 17839 got signal: 15
Call stack:
  File "/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/venv/torch/distributed/elastic/multiprocessing/api.py", line 1028, in _close
    logger.warning(
Message: 'Sending process %s closing signal %s'
Arguments: (18060, 'SIGTERM')
"""  # noqa: E501


def test_what_was_to_be_logged_is_no_exception(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(SAID)
    found = diagnose([tmp_path], jobs=1)
    assert found.verdict.cause == "job-ended-from-outside"
    assert not any(finding.cause == "rank-exception" for finding in found.findings)
