// The live page asks for itself again every 30 seconds. This keeps the reader where they are: no refresh
// while the tab is hidden, while text is being selected or after Pause; tables stay scrolled; what changed is
// said once. Without this file the page still refreshes, without any script there is its Refresh link.

(() => {
  const now = () => document.getElementById("live");
  const button = document.querySelector("[data-live-pause]");
  const state = document.querySelector("[data-live-state]");
  const says = document.querySelector("[data-live-says]");
  let paused = false;
  let summary = now()?.dataset.summary;
  let scrolled = {};

  const say = (trouble) => { state.textContent = paused ? "Paused" : trouble || `Updated ${now().dataset.moment}`; };

  button.addEventListener("click", () => {
    paused = !paused;
    button.setAttribute("aria-pressed", String(paused));
    say();
  });

  const selecting = () => {
    const selection = window.getSelection();
    return selection && !selection.isCollapsed && now().contains(selection.anchorNode);
  };

  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "live" && (paused || document.hidden || selecting())) event.preventDefault();
  });

  document.addEventListener("htmx:beforeSwap", () => {
    scrolled = Object.fromEntries([...document.querySelectorAll("[data-keep]")].map((part) => [part.dataset.keep, part.scrollLeft]));
  });

  document.addEventListener("htmx:afterSettle", () => {
    for (const part of document.querySelectorAll("[data-keep]")) part.scrollLeft = scrolled[part.dataset.keep] ?? 0;
    say();
    if (now().dataset.summary === summary) return;
    summary = now().dataset.summary;
    says.textContent = summary;
  });

  for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
    document.addEventListener(failure, () => say("Not refreshed: the site does not answer. Trying again."));
  }
})();
