/** Figures as people read them. Missing ones are a dash. */

export const NONE = "–";
const MICROS = 1_000_000;
const DAY_S = 86_400;

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const units = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
const fine = new Intl.NumberFormat("en", { minimumFractionDigits: 2, maximumFractionDigits: 6 });
const clock = new Intl.DateTimeFormat("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export const count = (value) => (value < 100_000 ? whole.format(value) : compact.format(value));

export function rate(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 100) return count(value);
  return value.toFixed(value >= 10 || value === 0 ? 1 : 2);
}

export const percent = (share) => (share === null || share === undefined ? NONE : `${Math.round(share * 100)} %`);

/** A time that was measured: 85 ms, 1.25 s. */
export function time(seconds) {
  if (seconds === null || seconds === undefined) return NONE;
  if (seconds >= 1) return `${Number(seconds.toPrecision(3))} s`;
  return `${Number((seconds * 1000).toPrecision(3))} ms`;
}

/** A time that passes: 42 s, 3 min, 2 h 5 min, 3 d 4 h. */
export function span(seconds) {
  const passed = Math.max(0, Math.floor(seconds));
  if (passed < 60) return `${passed} s`;
  const minutes = Math.floor(passed / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const money = (micros) => (Math.abs(micros) < MICROS / 100 ? fine : units).format(micros / MICROS);

/** Days in UTC, from so many days before a moment to so many before it: 2026-11-24 to 2026-11-30. */
export function days(epochS, firstAgo, lastAgo) {
  const [first, last] = [firstAgo, lastAgo].map((ago) =>
    new Date((epochS - ago * DAY_S) * 1000).toISOString().slice(0, 10),
  );
  return first === last ? first : `${first} to ${last}`;
}

export const minuteOf = (epochS) => clock.format(epochS * 1000);
