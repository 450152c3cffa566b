import signal
import torch.distributed as dist


def on_term(number, frame):
    dist.barrier()  # wrong: conditional-collective|collective-order
    raise SystemExit(1)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    signal.signal(signal.SIGUSR1, on_term)
    dist.barrier()
    dist.destroy_process_group()
