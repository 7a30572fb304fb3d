/** The screen of a machine: noVNC around KubeVirt's vnc subresource. */

import { useEffect, useRef, useState } from "preact/hooks";
import type RFB from "@novnc/novnc";
import { useApp } from "../app-context";
import { consolePath } from "./console";

export function Screen({ namespace, name }: { namespace: string; name: string }) {
  const { cluster } = useApp();
  const box = useRef<HTMLDivElement>(null);
  const screen = useRef<RFB | undefined>(undefined);
  const [state, setState] = useState("connecting");
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let isGone = false;
    setState("connecting");
    void (async () => {
      const { default: Client } = await import("@novnc/novnc");
      if (isGone) return;
      const { client } = cluster;
      const rfb = new Client(element, client.socketUrl(consolePath(namespace, name, "vnc")), { wsProtocols: client.protocols("plain.kubevirt.io") });
      rfb.scaleViewport = true;
      rfb.background = "#0b0f14";
      rfb.addEventListener("connect", () => setState("connected"));
      rfb.addEventListener("disconnect", (event) => {
        screen.current = undefined;
        setState(event.detail.clean ? "closed" : "lost");
      });
      screen.current = rfb;
    })();
    return () => {
      isGone = true;
      screen.current?.disconnect();
      screen.current = undefined;
    };
  }, [namespace, name, turn]);
  return (
    <div class="console-frame">
      <p class="bar" role="status">
        {TEXTS[state]}
        {state === "connected" && (
          <button type="button" onClick={() => screen.current?.sendCtrlAltDel()}>
            Ctrl+Alt+Del
          </button>
        )}
        {(state === "closed" || state === "lost") && (
          <button type="button" onClick={() => setTurn(turn + 1)}>
            Connect again
          </button>
        )}
      </p>
      <div ref={box} class="screen" role="group" aria-label={`Screen of ${name}`} />
    </div>
  );
}

const TEXTS: Record<string, string> = {
  connecting: "Connecting to the screen …",
  connected: "Connected.",
  closed: "The screen was closed: another client may have opened it, or the machine has stopped.",
  lost: "The screen cannot be reached: the machine may not run, may have no graphics device, or your role does not permit it.",
};
