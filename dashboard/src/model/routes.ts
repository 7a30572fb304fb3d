/** Addresses of the views: what stands behind # in the location. */

export const VIEWS = ["fleet", "machines", "machine", "set", "create", "activity", "nodes", "images"] as const;
export type View = (typeof VIEWS)[number];

export interface Route {
  view: View;
  /** The parts behind the view, such as the namespace and the name. */
  parts: readonly string[];
}

export function href(view: View, ...parts: string[]): string {
  return `#/${[view, ...parts].map(encodeURIComponent).join("/")}`;
}

/** Return the route of a location's hash; the fleet for what names no view. */
export function routeOf(hash: string): Route {
  const [, first = "", ...parts] = hash.split("/");
  const view = VIEWS.find((each) => each === first);
  return view ? { view, parts: parts.map(decoded) } : { view: "fleet", parts: [] };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
