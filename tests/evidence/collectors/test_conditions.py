"""What a run keeps of its conditions."""

from __future__ import annotations

from whichrank.evidence.collectors import conditions


def test_configuration_counts_as_code_does(tmp_path):
    place = tmp_path / "job"
    for name in ("train.py", "config.yaml", "ds.json", "metrics.json", "wandb/run-1/files/config.yaml", "conf/a.toml"):
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a: 1\n")
    outside = tmp_path / "shared.yaml"
    outside.write_text("b: 2\n")
    found = conditions.code(place, ["torchrun", "train.py", "--deepspeed=ds.json", "--config", str(outside)])["files"]
    assert set(found) == {"train.py", "config.yaml", "conf/a.toml", "ds.json", "shared.yaml"}
