from accelerate import Accelerator


def evaluate(accelerator, model, loader):
    scores = []
    for batch in loader:
        out = accelerator.gather_for_metrics(model(batch["x"]))
        if accelerator.is_main_process:
            scores.append(out.cpu())
    accelerator.wait_for_everyone()
    if accelerator.is_local_main_process:
        accelerator.print(len(scores))
    return scores


def main(model, opt, loader):
    accelerator = Accelerator()
    model, opt, loader = accelerator.prepare(model, opt, loader)
    evaluate(accelerator, model, loader)
