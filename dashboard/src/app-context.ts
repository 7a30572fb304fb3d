/** What every view is given: the world, the fleet, and ways to act on them. */

import { createContext } from "preact";
import { useContext, useEffect, useState } from "preact/hooks";
import type { Cluster, World } from "./api/cluster";
import type { Action } from "./model/actions";
import type { Fleet } from "./model/fleet";

export interface App {
  cluster: Cluster;
  world: World;
  fleet: Fleet;
  /** Ask the user where the action wants that, do it, and report how it went, with its command. */
  perform: (action: Action) => void;
  notify: (message: string, kind?: "info" | "error") => void;
}

export const AppContext = createContext<App | undefined>(undefined);

export function useApp(): App {
  const app = useContext(AppContext);
  if (!app) throw new Error("outside of the app");
  return app;
}

const TICK_MS = 1000;
const tickers = new Set<(now: number) => void>();
let timer = 0;

/** Return the time, and again each second while the page is visible. */
export function useNow(): number {
  const [now, setNow] = useState(() => Date.now());
  useEffect(() => {
    tickers.add(setNow);
    if (!timer) timer = window.setInterval(tick, TICK_MS);
    return () => {
      tickers.delete(setNow);
      if (tickers.size === 0) {
        clearInterval(timer);
        timer = 0;
      }
    };
  }, []);
  return now;
}

function tick(): void {
  if (document.hidden) return;
  const now = Date.now();
  for (const each of tickers) each(now);
}
