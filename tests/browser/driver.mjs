// A page without a browser: evaluates what it reads, one JSON text a line, and prints what came of it.
// `client` is headwater.js; `sent` are the types of all messages that any WebSocket of it has sent. A message of a type in
// `refused` does not reach the server: it is answered as by one that has too much to do, once for each time it stands there.
import { createInterface } from "node:readline";

globalThis.sent = [];
globalThis.sockets = [];
globalThis.refused = [];
const Native = globalThis.WebSocket;
globalThis.WebSocket = class extends Native {
  constructor(...options) {
    super(...options);
    sockets.push(this);
    // Every browser says that a connection which never came about is closed; this node does not.
    this.addEventListener("error", () => { if (this.readyState === Native.CONNECTING) this.onclose?.({ code: 1006, reason: "" }); });
  }

  send(text) {
    const { id, type } = JSON.parse(text);
    sent.push(type);
    if (!refused.includes(type)) return super.send(text);
    refused.splice(refused.indexOf(type), 1);
    const data = JSON.stringify({ id, type: "error", payload: { code: "overloaded", message: "too much to do" } });
    setTimeout(() => this.onmessage({ data }));
  }
};
globalThis.client = await import("./headwater.js");

async function answer({ id, expression }) {
  try {
    return { id, value: (await (0, eval)(expression)) ?? null };
  } catch (error) {
    return { id, error: error.code ?? String(error) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  answer(JSON.parse(line)).then(told => console.log(JSON.stringify(told)));
}
process.exit(0);
