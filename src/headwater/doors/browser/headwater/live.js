// What goes on with documents, over the WebSocket: live queries, and the stream that replicas live on. The connection
// calls `begin` when there is a new one, `receive` for what is told, `fail` for a refusal, and `end` when nothing will
// be told any more.

import { Emitter, HeadwaterError, Patience } from "./events.js";
import { compareDocuments } from "./order.js";

/** Documents that are followed. Events: "documents" (all of them), "enter", "change", "leave" (one), "error" (the end). */
export class LiveQuery extends Emitter {
  #connection;
  #payload;
  #orderBy;
  #id;
  #held = new Map();
  #sorted = null;
  // The pages of a snapshot that is not whole yet.
  #coming = null;
  #token = null;
  #seq = -1;
  #told = null;
  #settle;
  #patience = new Patience();
  #isOver = false;

  constructor(connection, collection, { filters, filter, orderBy, ...others }, listener) {
    super();
    const refused = Object.keys(others).filter(name => others[name]);
    if (refused.length > 0) {
      throw new HeadwaterError("invalid_input", `a live query is of all that fit: it has no ${refused.join(", ")}`);
    }
    this.#connection = connection;
    this.#orderBy = orderBy;
    this.#payload = { query: { collection, filters, filter }, includeData: true, sendSnapshot: true };
    /** Resolves with the documents when they are there for the first time. */
    this.ready = new Promise((resolve, reject) => { this.#settle = { resolve, reject }; });
    this.ready.catch(() => {});
    if (listener) this.on("documents", listener);
    this.#id = connection.follow(this);
    if (connection.state === "open") this.begin();
  }

  /** The documents that the query means, as far as this page knows. */
  get documents() {
    this.#sorted ??= [...this.#held.values()].sort((one, other) => compareDocuments(one, other, this.#orderBy));
    return this.#sorted;
  }

  /** Follow them no more; what is known stays. */
  stop() {
    clearTimeout(this.#told);
    this.#patience.stop();
    this.#isOver = true;
    this.#connection.unfollow(this.#id);
  }

  /** There is a connection: go on where the last one ended, or read anew where that cannot be. */
  async begin() {
    this.#patience.stop();
    try {
      const isWhole = this.#token !== null && this.#coming === null;
      if (!isWhole || !(await this.#resume())) await this.#subscribe();
      this.#patience.reset();
    } catch (error) {
      this.fail(error);
    }
  }

  // The next connection begins anew by itself, and so does what was refused only for the moment.
  fail(error) {
    if (this.#isOver || error.code === "connection_lost") return;
    if (!this.#patience.takes(error, () => this.begin())) this.end(error);
  }

  async #resume() {
    try {
      // Where the log does not reach back, `resync-required` follows.
      await this.#connection.askNow("resume", { token: this.#token, lastSeq: this.#seq });
      return true;
    } catch (error) {
      if (error.code === "connection_lost") throw error;
      return false;
    }
  }

  async #subscribe() {
    this.#coming = new Map();
    this.#token = null;
    this.#seq = -1;
    const { token } = await this.#connection.askNow("subscribe", this.#payload, this.#id);
    this.#token = token;
  }

  receive(type, payload) {
    if (type === "snapshot") this.#collect(payload);
    else if (type === "event") this.#apply(payload);
    else if (type === "resync-required") {
      this.#token = null;
      this.begin();
    }
  }

  #collect({ documents, more, seq }) {
    for (const document of documents) this.#coming.set(document.id, document);
    if (more) return;
    this.#seq = seq;
    const whole = this.#coming;
    this.#coming = null;
    this.#replace(whole);
  }

  // Nobody sees a set that is half old and half new: it is exchanged, and then what is different is told.
  #replace(documents) {
    const before = this.#held;
    this.#held = documents;
    this.#change();
    for (const [id, known] of before) if (!documents.has(id)) this.emit("leave", known);
    for (const [id, document] of documents) {
      const known = before.get(id);
      if (!known) this.emit("enter", document);
      else if (!isSame(known, document)) this.emit("change", document);
    }
    this.#settle.resolve(this.documents);
  }

  #apply({ delta, seq }) {
    this.#seq = seq;
    const known = this.#held.get(delta.id);
    // After a resume, what was in the snapshot already may come once more.
    if (known && (delta.op === "delete" ? known.version > delta.doc.version : known.version >= delta.doc.version)) return;
    if (delta.op === "delete") {
      if (!this.#held.delete(delta.id)) return;
      this.#change();
      this.emit("leave", delta.left ? known : { ...known, deleted: true });
    } else {
      this.#held.set(delta.id, delta.document);
      this.#change();
      this.emit(known ? "change" : "enter", delta.document);
    }
  }

  // However many changes come at once, they are shown once.
  #change() {
    this.#sorted = null;
    this.#told ??= setTimeout(() => {
      this.#told = null;
      this.emit("documents", this.documents);
    });
  }

  end(error) {
    this.stop();
    this.#settle.reject(error);
    if (error.code !== "closed") this.emit("error", error);
  }
}

/** What is written to a collection, for a replica: `{documents, checkpoint}`, or "RESYNC" when it has to pull first. */
export class ReplicaStream {
  #connection;
  #collection;
  #observer;
  #id;
  #patience = new Patience();
  #isOver = false;

  constructor(connection, collection, observer) {
    this.#connection = connection;
    this.#collection = collection;
    this.#observer = typeof observer === "function" ? { next: observer } : observer;
    this.#id = connection.follow(this);
    if (connection.state === "open") this.begin();
  }

  unsubscribe() {
    this.#patience.stop();
    this.#isOver = true;
    this.#connection.unfollow(this.#id);
  }

  async begin() {
    this.#patience.stop();
    try {
      this.#connection.tell("stream", { collection: this.#collection }, this.#id);
      // Nothing answers `stream`. Messages are handled in their order, so what answers the next one comes after it.
      await this.#connection.askNow("unsubscribe", { id: `before ${this.#id}` });
      this.#patience.reset();
      this.#observer.next("RESYNC");
    } catch (error) {
      this.fail(error);
    }
  }

  // The next connection begins anew by itself, and so does what was refused only for the moment.
  fail(error) {
    if (this.#isOver || error.code === "connection_lost") return;
    if (!this.#patience.takes(error, () => this.begin())) this.end(error);
  }

  receive(type, payload) {
    if (type === "resync-required") this.begin();
    else if (type === "stream-event") {
      this.#observer.next({ documents: payload.documents, checkpoint: payload.checkpoint });
    }
  }

  end(error) {
    this.unsubscribe();
    if (error.code !== "closed") this.#observer.error?.(error);
  }
}

// In a store that was restored, a version may stand for something else than before.
function isSame(one, other) {
  return one.version === other.version && JSON.stringify(one) === JSON.stringify(other);
}
