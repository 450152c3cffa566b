import torch.distributed as dist


def work(path):
    with open(path) as f:
        return len(f.read())


def main(path):
    dist.init_process_group("gloo")
    try:
        work(f"{path}.{dist.get_rank()}")
    finally:
        dist.barrier()  # wrong: conditional-collective
        dist.destroy_process_group()


if __name__ == "__main__":
    main("/tmp/x")
