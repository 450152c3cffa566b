from accelerate import Accelerator


def evaluate(accelerator, model, loader):
    scores = []
    for batch in loader:
        out = model(batch["x"])
        if accelerator.is_main_process:
            scores.append(accelerator.gather_for_metrics(out))  # wrong: rank0-only-collective
    return scores


def main(model, opt, loader):
    accelerator = Accelerator()
    model, opt, loader = accelerator.prepare(model, opt, loader)
    evaluate(accelerator, model, loader)
