"use strict";
// Copy buttons, and a print that leaves nothing folded.
for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", async () => {
  const code = button.previousElementSibling;
  let copied = true;
  try { await navigator.clipboard.writeText(code.textContent); } catch {
    const range = document.createRange();
    range.selectNodeContents(code);
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    copied = document.execCommand("copy");
  }
  button.textContent = copied ? "Copied" : "Press Ctrl+C";
  setTimeout(() => { button.textContent = "Copy"; }, 2000);
});
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details:not([open])")) { one.open = true; one.dataset.closed = ""; } });
addEventListener("afterprint", () => { for (const one of document.querySelectorAll("[data-closed]")) { one.open = false; delete one.dataset.closed; } });
