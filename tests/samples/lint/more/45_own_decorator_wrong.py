import functools
import torch
import torch.distributed as dist


def main_only(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if dist.get_rank() == 0:
            return function(*args, **kwargs)
        return None

    return wrapper


@main_only
def report(value):
    dist.all_reduce(value)  # wrong: rank0-only-collective
    print(value)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    report(torch.ones(1))
    dist.destroy_process_group()
