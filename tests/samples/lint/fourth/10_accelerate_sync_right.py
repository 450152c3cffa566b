from accelerate import Accelerator


def main(model, opt, loader, sched):
    accelerator = Accelerator(gradient_accumulation_steps=4)
    model, opt, loader, sched = accelerator.prepare(model, opt, loader, sched)
    step = 0
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
                step += 1
            opt.step()
            sched.step()
            opt.zero_grad()
        if accelerator.sync_gradients and step % 100 == 0:
            accelerator.save_state(f"/ckpt/{step}")
            if accelerator.is_main_process:
                print("saved", step)
        if step >= 1000:
            break
    accelerator.wait_for_everyone()
    accelerator.end_training()
