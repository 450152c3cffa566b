import torch
import torch.distributed as dist


def server(params, world):
    for _ in range(10):
        for worker in range(1, world):
            grad = torch.empty_like(params)
            dist.recv(grad, src=worker)
            params -= 0.1 * grad
        for worker in range(1, world):
            dist.send(params, dst=worker)


def worker(params):
    for _ in range(10):
        dist.send(torch.randn_like(params), dst=0)
        dist.recv(params, src=0)


def main():
    dist.init_process_group("gloo")
    params = torch.zeros(4)
    if dist.get_rank() == 0:
        server(params, dist.get_world_size())
    else:
        worker(params)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
