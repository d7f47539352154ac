/**
 * What those who hear the admin's pages or walk them by keyboard need, where the theme and its libraries
 * leave it out. Icons are words that a font draws, and would be read aloud; lists that are searched on
 * the server do not say of which field they are; nothing leads past the navigation; and pages are hidden
 * at first, when the browser would put the focus where they ask for it.
 */

const ICON = ".material-symbols-outlined";

/** Whether a link or a button says what it does, its icons aside. */
function isNamed(control) {
  if (control.title || control.getAttribute("aria-label")) return true;
  const rest = control.cloneNode(true);
  for (const icon of rest.querySelectorAll(ICON)) icon.remove();
  return rest.textContent.trim() !== "";
}

function hideIcons() {
  for (const icon of document.querySelectorAll(ICON)) {
    const control = icon.closest("a, button");
    if (!control || isNamed(control)) icon.setAttribute("aria-hidden", "true");
  }
}

function leadToContent() {
  const content = document.getElementById("content");
  if (!content) return;
  content.setAttribute("role", "main");
  content.tabIndex = -1;
  const way = document.createElement("a");
  way.href = "#content";
  way.className = "way-to-content";
  way.textContent = "Skip to the content";
  document.body.prepend(way);
}

function nameSearchedLists() {
  for (const select of document.querySelectorAll("select.admin-autocomplete")) {
    const label = document.querySelector(`label[for="${CSS.escape(select.id)}"]`);
    const box = select.nextElementSibling?.querySelector(".select2-selection");
    const value = box?.querySelector(".select2-selection__rendered");
    if (!label || !value) continue;
    label.id ||= `label-of-${select.id}`;
    value.setAttribute("aria-labelledby", label.id);
    box.setAttribute("aria-labelledby", `${label.id} ${value.id}`);
  }
}

function takeFocus() {
  if (document.activeElement === document.body) document.querySelector("[autofocus]")?.focus();
}

addEventListener("DOMContentLoaded", () => {
  hideIcons();
  leadToContent();
  // Called in turn, after what makes the lists: every script has been read by now.
  window.django?.jQuery?.(nameSearchedLists);
});
// Told while the page is still hidden, which ends in a microtask of its own.
document.addEventListener("alpine:initialized", () => setTimeout(takeFocus));
