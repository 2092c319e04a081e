// Runs in <head>, before anything is painted: the stored choice, else what the system prefers.
// Without it the style sheet still follows the system.
(() => {
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => {
    try { return localStorage.getItem("clustertab-theme"); } catch { return null; } // storage may be off
  };

  function show() {
    root.dataset.bsTheme = stored() ?? (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event("themechange"));
  }

  root.classList.add("js");
  show();
  system.addEventListener("change", show);
  window.addEventListener("storage", show); // chosen in another tab

  window.addEventListener("beforeprint", () => { root.dataset.bsTheme = "light"; });
  window.addEventListener("afterprint", show);

  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    const chosen = root.dataset.bsTheme === "dark" ? "light" : "dark";
    try { localStorage.setItem("clustertab-theme", chosen); } catch { /* it lasts for this page */ }
    root.dataset.bsTheme = chosen;
    document.dispatchEvent(new Event("themechange"));
  });
})();
