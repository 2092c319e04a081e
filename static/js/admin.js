// What Django's administration leaves to a mouse or to eyes: names of fields to choose in, and wide tables.
"use strict";

// select2 builds such a field without the label of the select that it stands for.
function nameChoices() {
  for (const select of document.querySelectorAll("select.select2-hidden-accessible")) {
    const label = select.labels?.[0];
    const field = select.nextElementSibling?.querySelector("[role=combobox]");
    const shown = field?.querySelector("[role=textbox]");
    const name = label?.textContent.replace(/[:\s]+$/, "").trim() ?? select.getAttribute("aria-label");
    if (!name || !shown) continue;
    shown.setAttribute("aria-label", [name, shown.title].filter(Boolean).join(": "));
  }
}

// A table that is wider than the window scrolls by keyboard, too.
function scrollTables() {
  for (const table of document.querySelectorAll(".results, .inline-group .tabular")) {
    if (table.scrollWidth > table.clientWidth) table.tabIndex = 0;
  }
}

document.addEventListener("DOMContentLoaded", () => {
  scrollTables();
  // Behind Django's own handlers, which build the fields.
  window.django?.jQuery?.(nameChoices);
});
document.addEventListener("formset:added", nameChoices);
document.addEventListener("change", nameChoices);
