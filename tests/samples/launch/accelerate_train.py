import os

from accelerate import Accelerator


def main():
    os.environ["NCCL_P2P_DISABLE"] = "1"
    os.environ["NCCL_IB_DISABLE"] = "1"
    accelerator = Accelerator()
    accelerator.print("up")
    os.environ["WANDB_PROJECT"] = "x"


if __name__ == "__main__":
    main()
