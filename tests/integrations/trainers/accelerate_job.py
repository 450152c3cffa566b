"""Accelerate, two processes by torchrun: trains, evaluates, saves."""

import datetime as dt
import sys
import tempfile
import time
from pathlib import Path

import torch
from accelerate import Accelerator, InitProcessGroupKwargs

sys.path.insert(0, str(Path(__file__).parent))
from common import STEPS, Samples, Seen

from whichrank.integrations import marking
from whichrank.integrations.accelerate import watched

seen = Seen()
patience = InitProcessGroupKwargs(backend="gloo", timeout=dt.timedelta(seconds=60))
accelerator = Accelerator(cpu=True, kwargs_handlers=[patience])
plain = torch.nn.Linear(8, 1)
model, optimizer, loader = accelerator.prepare(
    plain, torch.optim.SGD(plain.parameters(), lr=0.01), torch.utils.data.DataLoader(Samples(), batch_size=1)
)
with watched(accelerator, model, optimizer):
    for x, y in marking.data(loader):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        time.sleep(0.01)
        accelerator.backward(loss)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        for _ in range(STEPS):
            model(torch.randn(4, 8))
            time.sleep(0.01)
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(3):
            accelerator.save_state(f"{folder}/{accelerator.process_index}")
seen.tell()
