import torch
import torch.distributed as dist


def train(step_fn, limit):
    done = torch.zeros(1)
    step = 0
    while not done.item():
        loss = step_fn(step)
        dist.all_reduce(loss)
        if dist.get_rank() == 0 and loss.item() < 0.01:
            done.fill_(1)
        dist.broadcast(done, src=0)
        step += 1
        if step >= limit:
            break
    return step


if __name__ == "__main__":
    dist.init_process_group("gloo")
    train(lambda s: torch.rand(1), 10)
    dist.destroy_process_group()
