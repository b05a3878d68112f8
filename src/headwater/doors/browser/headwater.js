// Rooms of a Headwater server, for browsers: one module, nothing to build.
//
//   import { connect } from "/headwater.js";
//
//   const hw = connect();
//   const room = hw.room("canvas-1", { profile: { name: "Ada" } });
//   room.on("object-create", message => draw(message.data));
//   await room.join();
//   await room.send("object-create", { x: 10, y: 20 });
//
// The connection comes back by itself, with a pause that grows and differs from client to client, and every room goes on
// behind the last message it saw: nothing is missed and nothing comes twice, or `resync` says what is gone.

const SILENCE_MS = 90_000;
const HEARTBEAT_MS = 25_000;
const PAUSE_MS = 250;
const PAUSE_MAX_MS = 15_000;
const CURSOR_MS = 33;
const UNSENT_MAX = 1_000;

// What a client would do wrong again: it has to be mended, or needs another token.
const FINAL_CODES = new Set([1002, 1003, 1007, 1008, 1009]);

export class HeadwaterError extends Error {
  constructor(code, message) {
    super(message);
    this.name = "HeadwaterError";
    this.code = code;
  }
}

class Emitter {
  #listeners = new Map();

  /** Call `listener` for each event of this name; returns what ends that. */
  on(name, listener) {
    if (!this.#listeners.has(name)) this.#listeners.set(name, new Set());
    this.#listeners.get(name).add(listener);
    return () => this.#listeners.get(name).delete(listener);
  }

  emit(name, value) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        // The mistake of one listener is no reason to lose a message for the others.
        setTimeout(() => { throw error; });
      }
    }
  }
}

/** A connection to a server. `options`: url, token (a text, or a function that gets one), database, WebSocket. */
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
  #timers = {};
  #heard = 0;
  #tokenRefused = false;

  constructor(options) {
    super();
    this.#options = options;
    this.#open();
  }

  /** "connecting", "open", "waiting" (for the next try) or "closed". */
  get state() {
    return this.#state;
  }

  /** The room of this name; asked for twice, it is the same. */
  room(name, options = {}) {
    if (!this.#rooms.has(name)) this.#rooms.set(name, new Room(this, name, options));
    return this.#rooms.get(name);
  }

  /** Leave all rooms and do not come back. */
  close() {
    this.#finish(new HeadwaterError("closed", "the connection was closed"), 1000);
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
  tell(type, payload) {
    if (this.#state === "open") this.#socket.send(JSON.stringify({ type, payload }));
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
      this.#finish(new HeadwaterError("invalid_input", String(error)), 1000);
      throw error;
    }
    this.#socket = socket;
    // What belongs to a socket that was given up is nobody's business any more.
    const mine = action => event => { if (this.#socket === socket) action(event); };
    socket.onopen = mine(() => this.#greet());
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
        const text = typeof token === "function" ? await token() : token;
        if (this.#socket !== socket) return;
        await this.#askNow("auth", { token: text, database: database ?? "" });
      } catch (error) {
        if (this.#socket === socket) this.#refused(error);
        return;
      }
    }
    if (this.#socket !== socket) return;
    this.#tokenRefused = false;
    for (const room of this.#rooms.values()) room.rejoin((type, payload) => this.#askNow(type, payload));
    const unsent = this.#unsent;
    this.#unsent = [];
    this.#change("open");
    for (const message of unsent) this.#write(message);
  }

  // A token that has run out is asked for once more, where a function gives it; a text stays what it is.
  #refused(error) {
    if (typeof this.#options.token === "function" && !this.#tokenRefused) {
      this.#tokenRefused = true;
      this.#lost(1013, "unauthorized");
    } else {
      this.#finish(error, 1000);
    }
  }

  #askNow(type, payload) {
    return new Promise((resolve, reject) => {
      const id = String(++this.#number);
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
    if (type === "error") this.emit("error", new HeadwaterError(payload.code, payload.message));
    else if (payload?.room !== undefined) this.#rooms.get(payload.room)?.receive(type, payload);
  }

  #lost(code, reason) {
    if (this.#state === "closed") return;
    this.#socket = null;
    clearInterval(this.#timers.heart);
    // They were sent, and nobody knows whether they arrived: whoever sent them decides.
    this.#fail(new HeadwaterError("connection_lost", "the connection was lost before an answer came"));
    if (FINAL_CODES.has(code)) {
      this.#finish(new HeadwaterError(code === 1008 ? "unauthorized" : "closed", reason || `closed with ${code}`), 1000);
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

  #finish(error, code) {
    if (this.#state === "closed" && this.#socket === null) return;
    const socket = this.#socket;
    this.#socket = null;
    clearInterval(this.#timers.heart);
    clearTimeout(this.#timers.again);
    for (const room of this.#rooms.values()) room.end();
    this.#fail(error);
    for (const { reject } of this.#unsent.splice(0)) reject(error);
    this.#change("closed");
    if (error.code !== "closed") this.emit("error", error);
    socket?.close(code);
  }
}

/** A room. Events: each type of message by its name, "message" (every one), "presence", "cursors", "resync", "joined". */
export class Room extends Emitter {
  #connection;
  #options;
  #last;
  #joined = false;
  #cursor = null;
  #cursorTimer = null;

  constructor(connection, name, options) {
    super();
    this.#connection = connection;
    this.#options = options;
    this.name = name;
    /** Who is there: member → profile. Oneself included. */
    this.members = new Map();
    /** Where the cursors of the others are: member → {x, y, …}. */
    this.cursors = new Map();
    /** The name of this connection in the room. */
    this.member = null;
  }

  /** Be in the room; `since` of the room's options says from where on: an offset, "now" or "beginning". */
  async join() {
    this.#joined = true;
    try {
      await this.#enter((type, payload) => this.#connection.ask(type, payload));
    } catch (error) {
      // Without a connection it joins as soon as there is one.
      if (error.code !== "connection_lost") this.#joined = false;
      throw error;
    }
  }

  /** Be there no longer. */
  async leave() {
    this.#joined = false;
    this.end();
    await this.#connection.ask("leave", { room: this.name });
  }

  /** Send a message to everybody in the room; resolves with its offset and how safe it is. */
  send(type, data, { key, durability } = {}) {
    return this.#connection.ask("send", { room: this.name, type, data, key, durability });
  }

  /** Say where one's cursor is. Called as often as the mouse moves, it sends the latest only. */
  cursor(place) {
    this.#cursor = place;
    this.#cursorTimer ??= setTimeout(() => {
      this.#cursorTimer = null;
      this.#connection.tell("send", { room: this.name, type: "cursor", data: this.#cursor });
    }, CURSOR_MS);
  }

  /** The last offset that was seen; null before the first. */
  get offset() {
    return typeof this.#last === "number" ? this.#last : null;
  }

  rejoin(ask) {
    if (this.#joined) this.#enter(ask).catch(error => this.emit("error", error));
  }

  end() {
    clearTimeout(this.#cursorTimer);
    this.#cursorTimer = null;
    this.members.clear();
    this.cursors.clear();
  }

  async #enter(ask) {
    const { profile, since = "now" } = this.#options;
    const known = this.#last ?? since;
    const ack = await ask("join", { room: this.name, since: known, profile });
    // Who began with "now" has everything up to here, and begins here when the connection is lost before a message.
    this.#last ??= since === "now" ? (ack.offset < 0 ? "beginning" : ack.offset) : undefined;
    this.member = ack.member;
    this.members = new Map(ack.members.map(({ member, profile }) => [member, profile]));
    this.cursors.clear();
    this.emit("joined", ack);
    this.emit("presence", this.members);
  }

  receive(type, payload) {
    if (type === "room-message") this.#take(payload);
    else if (type === "presence") this.#meet(payload);
    else if (type === "resync-required") {
      this.#last = payload.offset < 0 ? "beginning" : payload.offset;
      this.emit("resync", payload);
    }
  }

  #take(message) {
    if (message.offset !== null && message.offset !== undefined) {
      if (typeof this.#last === "number" && message.offset <= this.#last) return;
      this.#last = message.offset;
    }
    if (message.type === "cursor-batch") {
      for (const { member, ...place } of message.data.cursors) {
        if (member !== this.member) this.cursors.set(member, place);
      }
      this.emit("cursors", this.cursors);
    }
    this.emit("message", message);
    this.emit(message.type, message);
  }

  #meet({ member, profile, state }) {
    if (state === "left") {
      this.members.delete(member);
      if (this.cursors.delete(member)) this.emit("cursors", this.cursors);
    } else {
      this.members.set(member, profile);
    }
    this.emit("presence", this.members);
  }
}

function address(url) {
  const base = globalThis.location?.href;
  // Beside the module, so that it is found where a server is mounted in another app.
  const found = new URL(url ?? new URL("realtime/ws", import.meta.url), base);
  if (url !== undefined && !found.pathname.endsWith("/realtime/ws")) {
    found.pathname = found.pathname.replace(/\/?$/, "/realtime/ws");
  }
  found.protocol = found.protocol.replace("http", "ws");
  return found.href;
}
