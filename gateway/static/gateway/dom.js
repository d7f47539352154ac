/** What the pages share about their document. Text is only ever set as text, never as HTML. */

/** Return the element with this id. */
export const byId = (id) => document.getElementById(id);

/** Return what a JSON script tag of the page holds. */
export const readJson = (id) => JSON.parse(byId(id).textContent);

/** Make an element with attributes and children; a string becomes text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** Return the token that posts to the admin must carry. */
export const csrfToken = () => document.querySelector("[name=csrfmiddlewaretoken]").value;

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const sign = (found) => [found.tagName, found.id, found.getAttribute("href")].join(" ");

/** Return what stands in `fresh` where the focus is in `shown`, if anything does. */
function heirOfFocus(shown, fresh) {
  const focused = document.activeElement;
  const alike = (root) => [...root.querySelectorAll(FOCUSABLE)].filter((each) => sign(each) === sign(focused));
  return alike(fresh)[alike(shown).indexOf(focused)];
}

/** Fetch this page anew and put its element of that id in place of the one that is shown.
 *
 * The focus stays where it is: who reads with the keyboard is not sent back to the beginning. */
export async function refresh(id) {
  const response = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!response.ok || response.redirected) return location.reload();
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(id);
  if (!fresh) return;
  const shown = byId(id);
  // What is as it was is not touched: what is selected in it stays so, and nothing is read out again.
  if (shown.isEqualNode(fresh)) return;
  const heir = heirOfFocus(shown, fresh);
  shown.replaceWith(document.adoptNode(fresh));
  heir?.focus({ preventScroll: true });
}
