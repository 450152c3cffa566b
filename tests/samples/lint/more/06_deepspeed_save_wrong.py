import deepspeed
import torch.distributed as dist


def main(args, model, loader):
    engine, _, _, _ = deepspeed.initialize(args=args, model=model)
    for step, batch in enumerate(loader):
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            engine.save_checkpoint("/tmp/ds", tag=f"step{step}")  # wrong: rank0-only-collective
