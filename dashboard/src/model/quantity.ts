/** Kubernetes' quantities, and numbers as people read them. */

const FACTORS: Record<string, number> = {
  n: 1e-9, u: 1e-6, m: 1e-3, "": 1, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18,
  Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** Return the number of a quantity such as 100m, 64Mi or 1e3; NaN if it is none. */
export function parseQuantity(value: unknown): number {
  if (typeof value === "number") return value;
  const match = /^([+-]?[0-9.]+(?:[eE][+-]?[0-9]+)?)([a-zA-Z]*)$/.exec(String(value ?? ""));
  const factor = match ? FACTORS[match[2] ?? ""] : undefined;
  return match && factor !== undefined ? Number(match[1]) * factor : NaN;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Return bytes as people read them: 64 MiB. */
export function bytes(value: number): string {
  if (!Number.isFinite(value)) return "—";
  let unit = 0;
  while (value >= 1000 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short(value)} ${UNITS[unit]}`;
}

/** Return processors as people read them: 0.25 CPU, 3 m. */
export function processors(value: number): string {
  if (!Number.isFinite(value)) return "—";
  return value < 0.095 ? `${Math.round(value * 1000)} mCPU` : `${short(value)} CPU`;
}

function short(value: number): string {
  if (value >= 1e6) return value.toExponential(0).replace("e+", "e");
  return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toPrecision(2);
}
