/** The serial console of a machine: xterm.js around KubeVirt's console subresource. */

import { useEffect, useRef, useState } from "preact/hooks";
import { useApp } from "../app-context";
import { withAdoptedStyles } from "./adopted-styles";

const PROTOCOL = "plain.kubevirt.io";
const SCROLLBACK_LINES = 5000;
const ENCODER = new TextEncoder();

export function consolePath(namespace: string, name: string, what: "console" | "vnc"): string {
  return `/apis/subresources.kubevirt.io/v1/namespaces/${encodeURIComponent(namespace)}/virtualmachineinstances/${encodeURIComponent(name)}/${what}`;
}

export function Console({ namespace, name }: { namespace: string; name: string }) {
  const { cluster } = useApp();
  const box = useRef<HTMLDivElement>(null);
  const [state, setState] = useState("connecting");
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    let stop = () => {};
    let isGone = false;
    setState("connecting");
    void (async () => {
      const [{ Terminal }, { FitAddon }] = await Promise.all([import("@xterm/xterm"), import("@xterm/addon-fit")]);
      if (isGone) return;
      const terminal = new Terminal({
        cursorBlink: true,
        screenReaderMode: true,
        scrollback: SCROLLBACK_LINES,
        fontFamily: getComputedStyle(element).getPropertyValue("--mono"),
        fontSize: 13,
        theme: { background: "#0b0f14", foreground: "#d7dee7" },
        // Guests are not trusted: no links that they make up, no titles, no clipboard.
        linkHandler: { activate: () => {} },
      });
      const fit = new FitAddon();
      terminal.loadAddon(fit);
      const removeStyles = withAdoptedStyles(() => terminal.open(element));
      fit.fit();
      const sizes = new ResizeObserver(() => fit.fit());
      sizes.observe(element);
      const socket = cluster.client.socket(consolePath(namespace, name, "console"), PROTOCOL);
      socket.onopen = () => {
        setState("connected");
        terminal.focus();
      };
      socket.onmessage = (message: MessageEvent<ArrayBuffer | string>) =>
        terminal.write(typeof message.data === "string" ? message.data : new Uint8Array(message.data));
      socket.onclose = (event) => setState(event.reason || (event.wasClean ? "closed" : "lost"));
      const input = terminal.onData((data) => socket.readyState === WebSocket.OPEN && socket.send(ENCODER.encode(data)));
      stop = () => {
        input.dispose();
        sizes.disconnect();
        socket.onclose = null;
        socket.close();
        terminal.dispose();
        removeStyles();
      };
    })();
    return () => {
      isGone = true;
      stop();
    };
  }, [namespace, name, turn]);
  return (
    <div class="console-frame">
      <p class="bar" role="status">
        {TEXTS[state] ?? `Console: ${state}.`}
        {state !== "connected" && state !== "connecting" && (
          <button type="button" onClick={() => setTurn(turn + 1)}>
            Connect again
          </button>
        )}
        {state === "connected" && <span class="note">Press Enter if the screen is blank. Ctrl+Shift+C copies.</span>}
      </p>
      <div ref={box} class="console" aria-label={`Console of ${name}`} role="group" />
    </div>
  );
}

const TEXTS: Record<string, string> = {
  connecting: "Connecting to the console …",
  connected: "Connected.",
  closed: "The console was closed: another client may have opened it, or the machine has stopped.",
  lost: "The console cannot be reached: the machine may not run, or your role does not permit it.",
};
