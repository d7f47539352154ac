/** What the server has told: parts by kind, and by what is behind the slash of their names. */

export class State {
  #kinds = new Map();

  /** Take a message; return the kinds that have changed. */
  take({ whole, parts }) {
    const changed = new Set(whole ? this.#kinds.keys() : []);
    if (whole) this.#kinds.clear();
    for (const [name, value] of Object.entries(parts)) {
      const [kind, rest = ""] = split(name);
      changed.add(kind);
      if (!this.#kinds.has(kind)) this.#kinds.set(kind, new Map());
      if (value === null) this.#kinds.get(kind).delete(rest);
      else this.#kinds.get(kind).set(rest, value);
    }
    return changed;
  }

  /** The part of this name, or undefined. */
  one(name) {
    const [kind, rest = ""] = split(name);
    return this.#kinds.get(kind)?.get(rest);
  }

  /** All parts of a kind, by what is behind the slash. */
  all(kind) {
    return this.#kinds.get(kind) ?? new Map();
  }

  has(kind) {
    return this.#kinds.has(kind);
  }
}

function split(name) {
  const place = name.indexOf("/");
  return place < 0 ? [name] : [name.slice(0, place), name.slice(place + 1)];
}
