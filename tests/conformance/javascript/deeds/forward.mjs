import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";

import k8s from "../client.mjs";
import { podOfAMachine } from "../kinds.mjs";

export async function aPortIsForwardedForSeveralConnections(context) {
  const { config, namespace } = context;
  const pod = await podOfAMachine(context);
  const forward = new k8s.PortForward(config);
  const server = net.createServer((socket) => {
    forward.portForward(namespace, pod, [80], socket, null, socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    for (const size of [1, 10, 1_000_000]) {
      const sent = Buffer.alloc(size, size % 251);
      assert(sent.equals(await echoed(server.address().port, sent)));
    }
  } finally {
    server.close();
  }
}

// What comes back of what is sent: simulated machines echo.
async function echoed(port, sent) {
  const socket = net.connect(port, "127.0.0.1");
  socket.write(sent);
  const chunks = [];
  let length = 0;
  for await (const chunk of socket) {
    chunks.push(chunk);
    length += chunk.length;
    if (length >= sent.length) break;
  }
  return Buffer.concat(chunks);
}
