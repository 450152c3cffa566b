import torch
import torch.distributed as dist


class Base:
    def __init__(self):
        self.rank = dist.get_rank()
        self.is_chief = self.rank == 0

    def mean(self, value):
        total = torch.tensor(float(value))
        dist.all_reduce(total)
        return total.item() / dist.get_world_size()


class Trainer(Base):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def report(self, step, loss):
        mean = self.mean(loss)
        if self.is_chief:
            print(step, mean)

    def fit(self):
        for step in range(self.steps):
            loss = 1.0 / (step + 1)
            if step % 10 == 0:
                self.report(step, loss)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Trainer(100).fit()
    dist.destroy_process_group()
