"""Rows first on even ranks, columns first on odd ones."""
import torch
import torch.distributed as dist


class Grid:
    def __init__(self, rows, cols):
        self.rank = dist.get_rank()
        self.row_groups = [dist.new_group([r * cols + c for c in range(cols)]) for r in range(rows)]
        self.col_groups = [dist.new_group([r * cols + c for r in range(rows)]) for c in range(cols)]
        self.row = self.row_groups[self.rank // cols]
        self.col = self.col_groups[self.rank % cols]

    def reduce(self, x):
        if self.rank % 2 == 0:
            dist.all_reduce(x, group=self.row)  # wrong: process-group-order
            dist.all_reduce(x, group=self.col)  # near
        else:
            dist.all_reduce(x, group=self.col)  # near
            dist.all_reduce(x, group=self.row)  # near
        return x


if __name__ == "__main__":
    dist.init_process_group("gloo")
    Grid(2, 2).reduce(torch.ones(2))
    dist.destroy_process_group()
