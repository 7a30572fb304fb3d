declare module "@novnc/novnc" {
  interface Events {
    connect: CustomEvent<Record<string, never>>;
    disconnect: CustomEvent<{ clean: boolean }>;
  }
  export default class RFB {
    constructor(target: Element, url: string, options?: { wsProtocols?: string[] });
    scaleViewport: boolean;
    background: string;
    addEventListener<K extends keyof Events>(type: K, listener: (event: Events[K]) => void): void;
    disconnect(): void;
    sendCtrlAltDel(): void;
  }
}
