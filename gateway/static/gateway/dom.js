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

/** Fetch this page anew and put its element of that id in place of the one that is shown. */
export async function refresh(id) {
  const response = await fetch(location.href, { headers: { accept: "text/html" } });
  if (!response.ok || response.redirected) return location.reload();
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById(id);
  if (fresh) byId(id).replaceWith(document.adoptNode(fresh));
}
