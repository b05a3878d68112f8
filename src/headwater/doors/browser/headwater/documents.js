// Documents over HTTP: reading, writing, queries, and batches that are all or nothing.

import { segment } from "./events.js";
import { LiveQuery } from "./live.js";

/** Which documents of a collection. A query does not change: each call gives another one. */
export class Query {
  constructor(connection, collection, terms = {}) {
    this.connection = connection;
    /** The path of the collection. */
    this.path = collection;
    this.terms = { filters: [], filter: "", orderBy: [], ...terms };
  }

  /** Those where this holds: `where("size", ">", 10)`, or text: `where('size > 10 && "new" in labels')`. */
  where(field, op, value) {
    if (op !== undefined) return this.#with({ filters: [...this.terms.filters, { field, op, value }] });
    const both = [this.terms.filter, field].filter(Boolean);
    return this.#with({ filter: both.length > 1 ? both.map(text => `(${text})`).join(" && ") : both[0] });
  }

  /** In the order of a field; of the next one where those are equal, and at last by id. */
  orderBy(field, direction = "asc") {
    return this.#with({ orderBy: [...this.terms.orderBy, { field, direction }] });
  }

  /** No more than so many. */
  limit(count) {
    return this.#with({ limit: count });
  }

  /** Those behind a `nextCursor`. */
  startAfter(cursor) {
    return this.#with({ startAfter: cursor });
  }

  /** Deleted ones as well. */
  showDeleted(isShown = true) {
    return this.#with({ showDeleted: isShown });
  }

  /** The documents as they are now: `{documents, nextCursor}`; the cursor is "" when there are no more. */
  async find() {
    const { docs, nextCursor } = await this.connection.requestIn("api", "POST", "query", {
      collection: this.path,
      ...this.terms,
    });
    return { documents: docs, nextCursor };
  }

  /** All of them, page after page: `for await (const document of query.all())`. */
  async *all() {
    let query = this;
    for (;;) {
      const { documents, nextCursor } = await query.find();
      yield* documents;
      if (!nextCursor) return;
      query = query.startAfter(nextCursor);
    }
  }

  /** The documents, and what becomes of them; `listener` is called with all of them whenever that is something new. */
  follow(listener) {
    return new LiveQuery(this.connection, this.path, this.terms, listener);
  }

  #with(terms) {
    return new Query(this.connection, this.path, { ...this.terms, ...terms });
  }
}

/** A collection of documents. It is also the query for all of them. */
export class Collection extends Query {
  /** The document with this id; null when there is none. */
  async get(id) {
    try {
      return await this.#ask("GET", [id]);
    } catch (error) {
      if (error.code === "document_missing") return null;
      throw error;
    }
  }

  /** Make a document; without `id` it gets one. */
  create(data, { id } = {}) {
    return this.#ask("POST", [], id === undefined ? data : { ...data, id });
  }

  /** Make a document, or replace all of its fields. */
  set(id, data, { ifMatch } = {}) {
    return this.#ask("PUT", [id], { doc: data, ifMatch: conditions(ifMatch) });
  }

  /** Change these fields of a document; the others stay. */
  update(id, data, { ifMatch } = {}) {
    return this.#ask("PATCH", [id], { doc: data, ifMatch: conditions(ifMatch) });
  }

  /** Delete a document. */
  async delete(id, { ifMatch } = {}) {
    await this.#ask("DELETE", [id], { ifMatch: conditions(ifMatch) });
  }

  async #ask(method, id, body) {
    const path = [...this.path.split("/"), ...id].map(segment).join("/");
    return this.connection.requestIn("api", method, `documents/${path}`, body);
  }
}

/** Writes that take effect together or not at all. Nothing happens before `commit`. */
export class Batch {
  #connection;
  #writes = [];

  constructor(connection) {
    this.#connection = connection;
  }

  /** Make the document at a path: "todos/t1". */
  create(path, data) {
    return this.#add({ type: "create", path, data });
  }

  /** Make it, or replace all of its fields. */
  set(path, data, { ifMatch } = {}) {
    return this.#add({ type: "set", path, data, ifMatch: conditions(ifMatch) });
  }

  /** Change these fields of it. */
  update(path, data, { ifMatch } = {}) {
    return this.#add({ type: "update", path, data, ifMatch: conditions(ifMatch) });
  }

  /** Delete it. */
  delete(path, { ifMatch } = {}) {
    return this.#add({ type: "delete", path, ifMatch: conditions(ifMatch) });
  }

  /** Do all of it, or nothing when a condition of any does not hold; resolves with the documents, one for each write. */
  async commit() {
    if (this.#writes.length === 0) return [];
    const { docs } = await this.#connection.requestIn("trigger", "POST", "write", { writes: this.#writes });
    return docs;
  }

  #add(write) {
    this.#writes.push(write);
    return this;
  }
}

// A replica that was away for long has more to push than a server takes at once.
const PUSH_BYTES = 4 * 2 ** 20;

/** Push what a replica has written, in parts of bounded size, one after the other; resolves with what conflicts. Rows that
 *  were taken before an error are told apart when they come again. */
export async function pushRows(connection, collection, rows) {
  const conflicts = [];
  for (const part of inParts(rows)) conflicts.push(...(await pushPart(connection, collection, part)));
  return conflicts;
}

function inParts(rows) {
  const encoder = new TextEncoder();
  const parts = [[]];
  let size = 0;
  for (const row of rows) {
    const more = encoder.encode(JSON.stringify(row)).length;
    if (size > 0 && size + more > PUSH_BYTES) {
      parts.push([]);
      size = 0;
    }
    parts.at(-1).push(row);
    size += more;
  }
  return parts;
}

// The server, or a proxy before it, may take less than that. Of a document that is too large itself it is said which.
async function pushPart(connection, collection, rows) {
  try {
    return await connection.request("POST", "replication/v1/push", { collection, rows });
  } catch (error) {
    if (error.status !== 413 || error.document !== undefined || rows.length < 2) throw error;
  }
  const half = rows.length >> 1;
  const first = await pushPart(connection, collection, rows.slice(0, half));
  return [...first, ...(await pushPart(connection, collection, rows.slice(half)))];
}

function conditions(ifMatch) {
  return ifMatch?.map(one => (Array.isArray(one) ? { field: one[0], op: one[1], value: one[2] } : one));
}
