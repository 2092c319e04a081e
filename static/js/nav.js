// The menu of small screens, drop-downs that close themselves, and invoice lines that open in place.
// All of them work without this file: the menu stands open, <details> toggles, lines are links.

document.addEventListener("click", (event) => {
  const menu = event.target.closest("[data-menu]");
  if (menu) {
    const open = document.getElementById(menu.getAttribute("aria-controls")).classList.toggle("is-open");
    menu.setAttribute("aria-expanded", String(open));
  }
  for (const drop of document.querySelectorAll("details.ct-drop[open]")) {
    if (!drop.contains(event.target)) drop.open = false;
  }
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const drop of document.querySelectorAll("details.ct-drop[open]")) {
    drop.open = false;
    drop.querySelector("summary").focus();
  }
});

// An opened line is fetched once; after that its link only shows and hides it.
document.addEventListener("htmx:beforeRequest", (event) => {
  const link = event.target.closest("[data-expand]");
  if (!link) return;
  const part = document.getElementById(link.dataset.expand);
  if (!part.dataset.loaded) return;
  event.preventDefault();
  part.hidden = !part.hidden;
  link.setAttribute("aria-expanded", String(!part.hidden));
});

document.addEventListener("htmx:afterSwap", (event) => {
  const link = document.querySelector(`[data-expand="${CSS.escape(event.target.closest("[data-part]")?.id ?? "")}"]`);
  if (!link) return;
  const part = document.getElementById(link.dataset.expand);
  part.dataset.loaded = "yes";
  part.hidden = false;
  link.setAttribute("aria-expanded", "true");
});
