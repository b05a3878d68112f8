// Rooms: what is said in them, and who is there.

import { Emitter, Patience } from "./events.js";

const CURSOR_MS = 33;
// Events of the client itself. A message may have such a type as well, and is no such event.
const OWN_EVENTS = new Set(["message", "presence", "cursors", "resync", "joined", "error"]);

/** A room. Events: each type of message by its name, "message" (every one), "presence", "cursors", "resync", "joined". */
export class Room extends Emitter {
  #connection;
  #options;
  #last;
  // Whose offset that is: a room that is deleted and made again, or whose store is restored, counts anew.
  #epoch;
  // Another one, which the room has by now, until it is told to begin anew: the offset is of the one before.
  #epochNext = null;
  #joined = false;
  // While it is asked for: the answer, for everybody who asks.
  #joining = null;
  #cursor = null;
  #cursorTimer = null;
  #patience = new Patience();

  constructor(connection, name, options) {
    super();
    this.#connection = connection;
    this.#options = options;
    this.#epoch = options.epoch ?? "";
    this.name = name;
    /** Who is there: member → profile. Oneself included. */
    this.members = new Map();
    /** Where the cursors of the others are: member → {x, y, …}. */
    this.cursors = new Map();
    /** The name of this connection in the room. */
    this.member = null;
  }

  /** Be in the room; `since` of the room's options says from where on: an offset, "now" or "beginning". */
  join() {
    this.#joined = true;
    if (this.#joining === null) {
      const joining = this.#join().finally(() => { if (this.#joining === joining) this.#joining = null; });
      this.#joining = joining;
    }
    return this.#joining;
  }

  async #join() {
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
    this.#joining = null;
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

  /** Whose offsets they are; "" before the room's first message. With the offset it is where to go on another time. */
  get epoch() {
    return this.#epoch;
  }

  /** The last offset that was seen; null before the first. */
  get offset() {
    return typeof this.#last === "number" ? this.#last : null;
  }

  async rejoin(ask) {
    this.#patience.stop();
    // Who waits for a connection to join is sent by it.
    if (!this.#joined || this.#joining !== null) return;
    try {
      await this.#enter(ask);
    } catch (error) {
      // Without a connection it joins with the next one.
      if (error.code !== "connection_lost" && !this.#patience.takes(error, () => this.rejoin(ask))) this.emit("error", error);
    }
  }

  end() {
    this.#patience.stop();
    clearTimeout(this.#cursorTimer);
    this.#cursorTimer = null;
    this.members.clear();
    this.cursors.clear();
  }

  async #enter(ask) {
    const { profile, since = "now" } = this.#options;
    const known = this.#last ?? since;
    const ack = await ask("join", { room: this.name, since: known, epoch: this.#epoch, profile });
    const isAnother = typeof known === "number" && this.#epoch !== "" && ack.epoch !== this.#epoch;
    this.#epochNext = isAnother ? ack.epoch ?? "" : null;
    if (!isAnother) this.#epoch = ack.epoch ?? "";
    // Who began with "now" has everything up to here, and begins here when the connection is lost before a message.
    this.#last ??= since === "now" ? (ack.offset < 0 ? "beginning" : ack.offset) : undefined;
    this.#patience.reset();
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
      this.#epoch = this.#epochNext ?? this.#epoch;
      this.#epochNext = null;
      this.emit("resync", payload);
    }
  }

  #take(message) {
    if (message.epoch) this.#epoch = message.epoch;
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
    if (!OWN_EVENTS.has(message.type)) this.emit(message.type, message);
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
