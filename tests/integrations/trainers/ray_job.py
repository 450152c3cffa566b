"""Ray Train: two workers of a cluster that it starts itself; each trains, and reports a checkpoint."""

import os
import sys
import tempfile
from pathlib import Path

os.environ.update(RAY_TRAIN_V2_ENABLED="1", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")
HERE = str(Path(__file__).parent)
import ray
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

from whichrank.integrations.ray import Verdict, watched


def loop(config):
    import sys
    import time

    sys.path.insert(0, config["here"])
    import common
    import torch

    import ray.train
    from whichrank.integrations import marking

    common.MODE = config["mode"]
    seen = common.Seen()
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 1))
    marking.follow(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = ray.train.torch.prepare_data_loader(torch.utils.data.DataLoader(common.Samples(), batch_size=1))
    for x, y in marking.data(loader):
        loss = (model(x) - y).square().mean()
        time.sleep(0.01)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        marking.step()
    with tempfile.TemporaryDirectory() as folder:
        torch.save(model.state_dict(), f"{folder}/model.pt")
        ray.train.report({"loss": float(loss)}, checkpoint=Checkpoint.from_directory(folder))
    with torch.no_grad():
        model.eval()
        model(torch.randn(4, 8))
        time.sleep(0.05)
    seen.tell()


with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
    ray.init(num_cpus=2, include_dashboard=False, _temp_dir=folder, object_store_memory=100 << 20)
    trainer = TorchTrainer(
        watched(loop),
        train_loop_config={"mode": sys.argv[1], "here": HERE},
        torch_config=TorchConfig(backend="gloo", timeout_s=60),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(storage_path=f"{folder}/runs", failure_config=FailureConfig(0), callbacks=[Verdict()]),
    )
    try:
        trainer.fit()
    finally:
        ray.shutdown()
