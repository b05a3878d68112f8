// Rooms, documents and live queries of a Headwater server, for browsers: a module to import, and nothing to build.
//
//   import { connect } from "/headwater.js";
//
//   const hw = connect();
//   const room = hw.room("canvas-1", { profile: { name: "Ada" } });
//   room.on("object-create", message => draw(message.data));
//   await room.join();
//   await room.send("object-create", { x: 10, y: 20 });
//
//   const todos = hw.collection("todos");
//   todos.where("done", "==", false).orderBy("createdAt").follow(documents => show(documents));
//   await todos.create({ text: "Milk", done: false });
//
// The connection comes back by itself, with a pause that grows and differs from client to client. Every room goes on
// behind the last message it saw, and every live query behind the last change: nothing is missed and nothing comes
// twice. Where that cannot be, a room says `resync`, and a live query reads its documents anew by itself.

import { Batch, Collection, Query, pushRows } from "./headwater/documents.js";
import { Emitter, HeadwaterError, refusal, segment } from "./headwater/events.js";
import { LiveQuery, ReplicaStream } from "./headwater/live.js";
import { Room } from "./headwater/room.js";

export { Batch, Collection, HeadwaterError, LiveQuery, Query, Room };

const SILENCE_MS = 90_000;
const HEARTBEAT_MS = 25_000;
const PAUSE_MS = 250;
const PAUSE_MAX_MS = 15_000;
const UNSENT_MAX = 1_000;
const REQUEST_MS = 60_000;

// What a client would do wrong again: it has to be mended, or needs another token.
const FINAL_CODES = new Map([
  [1002, "protocol_error"],
  [1003, "protocol_error"],
  [1007, "protocol_error"],
  [1008, "unauthorized"],
  [1009, "message_too_large"],
]);

/** A connection to a server. `options`: url, token (a text, or a function that gets one), database, WebSocket, fetch. */
export function connect(options = {}) {
  return new Connection(typeof options === "string" || options instanceof URL ? { url: options } : options);
}

class Connection extends Emitter {
  #options;
  #socket = null;
  #state = "closed";
  #number = 0;
  #tries = 0;
  #waiting = new Map();
  #unsent = [];
  #rooms = new Map();
  #followers = new Map();
  #timers = {};
  #heard = 0;
  #tokenRefused = false;
  #token;

  constructor(options) {
    super();
    this.#options = options;
    this.#token = typeof options.token === "function" ? undefined : options.token;
    this.#open();
  }

  /** "connecting", "open", "waiting" (for the next try) or "closed". */
  get state() {
    return this.#state;
  }

  /** The room of this name; asked for twice, it is the same, and left for both. */
  room(name, options = {}) {
    if (!this.#rooms.has(name)) this.#rooms.set(name, new Room(this, name, options));
    return this.#rooms.get(name);
  }

  /** The documents of a collection: "todos", or "rooms/r1/notes" for those that belong to another document. */
  collection(path) {
    return new Collection(this, path);
  }

  /** Writes that take effect together or not at all. */
  batch() {
    return new Batch(this);
  }

  /** What RxDB's `replicateRxCollection` wants to know of a collection of this server: `pull` and `push`. */
  replication(collection) {
    return {
      pull: {
        handler: (checkpoint, limit) =>
          this.request("POST", "replication/v1/pull", { collection, checkpoint: checkpoint ?? null, limit }),
        stream$: { subscribe: observer => new ReplicaStream(this, collection, observer) },
      },
      push: { handler: rows => pushRows(this, collection, rows) },
    };
  }

  /** Leave all rooms, end all live queries, and do not come back. */
  close() {
    this.#finish(new HeadwaterError("closed", "the connection was closed"));
  }

  /** Send a message and wait for what answers it. While there is no connection, it waits for one. */
  ask(type, payload) {
    if (this.#state === "closed") return Promise.reject(new HeadwaterError("closed", "the connection is closed"));
    if (this.#state !== "open" && this.#unsent.length >= UNSENT_MAX) {
      return Promise.reject(new HeadwaterError("overloaded", `${UNSENT_MAX} messages wait for a connection`));
    }
    return new Promise((resolve, reject) => {
      const id = String(++this.#number);
      const message = { id, text: JSON.stringify({ id, type, payload }), resolve, reject };
      if (this.#state === "open") this.#write(message);
      else this.#unsent.push(message);
    });
  }

  /** Send what nobody answers and nobody misses: without a connection it is dropped. */
  tell(type, payload, id) {
    if (this.#state === "open") this.#socket?.send(JSON.stringify({ id, type, payload }));
  }

  /** Ask over HTTP. A token that has run out is got anew once, where a function gives it. */
  async request(method, path, body) {
    let answer = await this.#fetch(method, path, body);
    if (answer.status === 401 && typeof this.#options.token === "function") {
      this.#token = undefined;
      answer = await this.#fetch(method, path, body);
    }
    if (!answer.ok) throw await refusal(answer);
    return answer.status === 204 ? null : answer.json();
  }

  /** The same, for what belongs to a database. */
  async requestIn(service, method, path, body) {
    return this.request(method, `${service}/v1/databases/${segment(this.#options.database ?? "main")}/${path}`, body);
  }

  async #fetch(method, path, body) {
    if (this.#state === "closed") throw new HeadwaterError("closed", "the connection is closed");
    if (this.#token === undefined && typeof this.#options.token === "function") this.#token = await this.#options.token();
    const headers = body === undefined ? {} : { "content-type": "application/json" };
    if (this.#token !== undefined) headers.authorization = `Bearer ${this.#token}`;
    const get = this.#options.fetch ?? globalThis.fetch;
    const text = body === undefined ? undefined : JSON.stringify(body);
    const signal = AbortSignal.timeout(REQUEST_MS);
    try {
      return await get(new URL(path, root(this.#options.url)), { method, headers, body: text, signal });
    } catch (error) {
      throw new HeadwaterError("connection_lost", `no answer came: ${error.message}`);
    }
  }

  /** The id under which `follower` is told things; it is asked to `begin` with each new connection. */
  follow(follower) {
    if (this.#state === "closed") throw new HeadwaterError("closed", "the connection is closed");
    const id = String(++this.#number);
    this.#followers.set(id, follower);
    return id;
  }

  /** Follow it no more. */
  unfollow(id) {
    if (this.#followers.delete(id)) this.tell("unsubscribe", { id });
  }

  #write(message) {
    this.#waiting.set(message.id, message);
    this.#socket.send(message.text);
  }

  #change(state) {
    if (this.#state === state) return;
    this.#state = state;
    this.emit("state", state);
  }

  #open() {
    this.#change("connecting");
    const make = this.#options.WebSocket ?? globalThis.WebSocket;
    let socket;
    try {
      socket = new make(address(this.#options.url));
    } catch (error) {
      this.#finish(new HeadwaterError("invalid_input", String(error)));
      throw error;
    }
    this.#socket = socket;
    // What belongs to a socket that was given up is nobody's business any more.
    const mine = action => event => { if (this.#socket === socket) action(event); };
    let wasOpen = false;
    socket.onopen = mine(() => { wasOpen = true; this.#greet(); });
    // What a policy of the page forbids, or nobody answers, may end with an error and without a close.
    socket.onerror = mine(() => { if (!wasOpen) this.#leave("there was no connection"); });
    socket.onmessage = mine(event => this.#receive(JSON.parse(event.data)));
    socket.onclose = mine(event => this.#lost(event.code, event.reason));
    this.#heard = Date.now();
    clearInterval(this.#timers.heart);
    this.#timers.heart = setInterval(mine(() => this.#beat()), HEARTBEAT_MS);
  }

  async #greet() {
    const socket = this.#socket;
    const { token, database } = this.#options;
    if (token !== undefined) {
      try {
        this.#token = typeof token === "function" ? await token() : token;
      } catch {
        // Whoever gives tokens is away: that is no refusal, and is tried again like a network.
        if (this.#socket === socket) this.#leave("no token could be had");
        return;
      }
      if (this.#socket !== socket) return;
      try {
        await this.askNow("auth", { token: this.#token, database: database ?? "" });
      } catch (error) {
        if (this.#socket === socket) this.#refused(error);
        return;
      }
    }
    if (this.#socket !== socket) return;
    this.#tokenRefused = false;
    for (const room of this.#rooms.values()) room.rejoin((type, payload) => this.askNow(type, payload));
    const unsent = this.#unsent;
    this.#unsent = [];
    this.#change("open");
    for (const follower of [...this.#followers.values()]) follower.begin();
    for (const message of unsent) this.#write(message);
  }

  // A token that has run out is asked for once more, where a function gives it; a text stays what it is.
  #refused(error) {
    if (typeof this.#options.token === "function" && !this.#tokenRefused) {
      this.#tokenRefused = true;
      this.#leave("unauthorized");
    } else {
      this.#finish(error);
    }
  }

  // Give this connection up, and come back after a pause.
  #leave(reason) {
    const socket = this.#socket;
    this.#lost(1013, reason);
    socket.close(1000);
  }

  /** The same for who begins with a connection: it is not kept for the next one. */
  askNow(type, payload, id = String(++this.#number)) {
    return new Promise((resolve, reject) => {
      if (this.#socket === null) throw new HeadwaterError("connection_lost", "there is no connection");
      this.#write({ id, text: JSON.stringify({ id, type, payload }), resolve, reject });
    });
  }

  #beat() {
    if (Date.now() - this.#heard > SILENCE_MS) {
      const socket = this.#socket;
      this.#lost(1006, "nothing was heard of the server");
      socket.close();
    } else if (this.#socket.readyState === 1) {
      this.tell("heartbeat", {});
    }
  }

  #receive({ id, type, payload }) {
    this.#heard = Date.now();
    this.#tries = 0;
    if (id !== undefined && this.#waiting.has(id)) {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (type === "error") reject(new HeadwaterError(payload.code, payload.message));
      else resolve(payload);
      return;
    }
    const followed = this.#followers.get(payload?.subId ?? payload?.streamId ?? id);
    if (type === "error" && followed) followed.fail(new HeadwaterError(payload.code, payload.message));
    else if (type === "error") this.emit("error", new HeadwaterError(payload.code, payload.message));
    else if (followed) followed.receive(type, payload);
    else if (payload?.room !== undefined) this.#rooms.get(payload.room)?.receive(type, payload);
  }

  #lost(code, reason) {
    if (this.#state === "closed") return;
    this.#socket = null;
    clearInterval(this.#timers.heart);
    // They were sent, and nobody knows whether they arrived: whoever sent them decides.
    this.#fail(new HeadwaterError("connection_lost", "the connection was lost before an answer came"));
    const mayAskAgain = code === 1008 && typeof this.#options.token === "function" && !this.#tokenRefused;
    if (mayAskAgain) this.#tokenRefused = true;
    else if (FINAL_CODES.has(code)) {
      this.#finish(new HeadwaterError(FINAL_CODES.get(code), reason || `closed with ${code}`));
      return;
    }
    const most = code === 1001 ? PAUSE_MS * 2 : Math.min(PAUSE_MAX_MS, PAUSE_MS * 2 ** ++this.#tries);
    this.#change("waiting");
    this.#timers.again = setTimeout(() => this.#open(), Math.random() * most);
  }

  #fail(error) {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(error);
  }

  #finish(error) {
    if (this.#state === "closed" && this.#socket === null) return;
    const socket = this.#socket;
    this.#socket = null;
    clearInterval(this.#timers.heart);
    clearTimeout(this.#timers.again);
    for (const room of this.#rooms.values()) room.end();
    for (const follower of [...this.#followers.values()]) follower.end(error);
    this.#fail(error);
    for (const { reject } of this.#unsent.splice(0)) reject(error);
    this.#change("closed");
    if (error.code !== "closed") this.emit("error", error);
    socket?.close(1000);
  }
}

// ── where the server is ──

// Beside the module, so that it is found where a server is mounted in another app.
function root(url) {
  const found = new URL(url ?? ".", url === undefined ? import.meta.url : globalThis.location?.href);
  found.protocol = found.protocol.replace("ws", "http");
  found.pathname = found.pathname.replace(/(\/realtime\/ws)?\/?$/, "/");
  return found;
}

function address(url) {
  const found = new URL("realtime/ws", root(url));
  found.search = url === undefined ? "" : new URL(url, globalThis.location?.href).search;
  found.protocol = found.protocol.replace("http", "ws");
  return found.href;
}
