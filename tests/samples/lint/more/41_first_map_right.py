from accelerate import Accelerator


def prepare(dataset):
    accelerator = Accelerator()
    with accelerator.main_process_first():
        data = dataset.map(str)
    accelerator.wait_for_everyone()
    return data
