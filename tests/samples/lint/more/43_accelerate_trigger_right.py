from accelerate import Accelerator


def main(model, opt, loader):
    accelerator = Accelerator()
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for epoch in range(10):
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            opt.step()
            opt.zero_grad()
        if loss.item() < 0.01:
            accelerator.set_trigger()
        if accelerator.check_trigger():
            break
