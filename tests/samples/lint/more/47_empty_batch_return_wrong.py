import torch
import torch.distributed as dist


def evaluate(model, loader):
    correct, total = torch.zeros(1), torch.zeros(1)
    for x, y in loader:
        keep = y >= 0
        if keep.sum() == 0:
            continue
        correct += (model(x).argmax(-1) == y)[keep].sum()
        total += keep.sum()
    if total.item() == 0:
        return 0.0
    dist.all_reduce(correct)  # wrong: conditional-collective
    dist.all_reduce(total)
    return (correct / total).item()


if __name__ == "__main__":
    dist.init_process_group("gloo")
    loader = torch.utils.data.DataLoader([], batch_size=2)
    evaluate(torch.nn.Linear(2, 2), loader)
    dist.destroy_process_group()
