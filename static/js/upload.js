// A file is dropped onto the form and sent with its progress. Without this file the form sends it all the same.

for (const form of document.querySelectorAll("form[data-upload]")) {
  const field = form.querySelector("input[type=file]");
  const zone = form.querySelector("[data-dropzone]");
  const progress = form.querySelector("[data-progress]");
  const bar = progress.querySelector("progress");
  const text = progress.querySelector("[role=status]");
  const button = form.querySelector("button[type=submit]");

  for (const name of ["dragover", "dragleave", "drop"]) {
    zone.addEventListener(name, (event) => {
      event.preventDefault();
      zone.classList.toggle("is-over", name === "dragover");
    });
  }
  zone.addEventListener("drop", (event) => {
    if (event.dataTransfer.files.length) field.files = event.dataTransfer.files;
  });

  const stop = (sentence) => {
    text.textContent = sentence;
    button.disabled = false;
  };

  form.addEventListener("submit", (event) => {
    const file = field.files[0];
    if (!file) return;
    event.preventDefault();
    progress.hidden = false;
    if (file.size > Number(form.dataset.largest)) return stop(form.dataset.tooLarge);
    button.disabled = true;
    const request = new XMLHttpRequest();
    request.upload.addEventListener("progress", (sent) => {
      if (!sent.lengthComputable) return;
      bar.value = sent.loaded / sent.total;
      const percent = Math.floor((100 * sent.loaded) / sent.total);
      text.textContent = percent < 100 ? `${percent} %` : form.dataset.sent;
    });
    request.addEventListener("load", () => {
      if (request.status >= 400) return stop(form.dataset.broken);
      window.location.reload();
    });
    request.addEventListener("error", () => stop(form.dataset.broken));
    request.open("POST", form.action);
    request.setRequestHeader("X-Requested-With", "XMLHttpRequest");
    request.send(new FormData(form));
  });
}
