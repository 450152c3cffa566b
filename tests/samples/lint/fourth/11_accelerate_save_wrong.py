from accelerate import Accelerator


def main(model, opt, loader):
    accelerator = Accelerator()
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for step, batch in enumerate(loader):
        loss = model(**batch).loss
        accelerator.backward(loss)
        opt.step()
        opt.zero_grad()
        if step % 500 == 0:
            if accelerator.is_main_process:
                accelerator.save_state(f"/ckpt/{step}")  # wrong: rank0-only-collective
