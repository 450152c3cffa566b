"""Work by role: the roles communicate differently on the same group."""
import torch
import torch.distributed as dist


def actor(x):
    dist.all_reduce(x)  # wrong: conditional-collective|collective-order
    return x


def learner(x):
    out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(out, x)  # near
    return sum(out)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    role = "learner" if rank == 0 else "actor"
    x = torch.ones(2)
    for _ in range(3):
        if role == "learner":
            learner(x)
        else:
            actor(x)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
