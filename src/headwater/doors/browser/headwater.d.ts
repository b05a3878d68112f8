/** Rooms, documents and live queries of a Headwater server, for browsers. */

export type Durability = "memory" | "written" | "synced";
export type State = "connecting" | "open" | "waiting" | "closed";

export interface Options {
  /** The server; where the module comes from, unless it is given. */
  url?: string | URL;
  /** The token, or what gets one: a function is asked again when a token has run out. */
  token?: string | (() => string | Promise<string>);
  /** That of the token; "main" unless it is given. */
  database?: string;
  /** A WebSocket where there is none by itself. */
  WebSocket?: typeof WebSocket;
  /** The same for fetch. */
  fetch?: typeof fetch;
}

export interface RoomOptions {
  /** From where on messages are wanted: behind an offset, from now on (the default), or from the oldest that is kept. */
  since?: number | "now" | "beginning";
  /** Whose offset `since` is: the `epoch` of the room when it had that one. */
  epoch?: string;
  /** What others see of this member; up to 4 KiB. */
  profile?: unknown;
}

export interface Message<Data = any> {
  room: string;
  /** Rises by one with each message that is kept; null for what only passes. */
  offset: number | null;
  type: string;
  data: Data;
  /** The member who sent it. */
  from: string;
  /** When, in milliseconds since 1970. */
  at: number;
}

export interface SendOptions {
  key?: string;
  durability?: Durability;
}

export interface Sent {
  room: string;
  offset?: number;
  durability: Durability;
}

export interface Resync {
  room: string;
  reason: string;
  offset: number;
}

export class HeadwaterError extends Error {
  /** A code of the server, or "connection_lost", "closed", "overloaded", "invalid_input", "unauthorized",
   *  "message_too_large", "protocol_error". */
  code: string;
  /** Of what was refused over HTTP. */
  status?: number;
  /** The id of the document that it is about, where several were handed in. */
  document?: string;
}

export interface Connection {
  readonly state: State;
  /** The room of this name, one object for the whole page: options count when it is first asked for, and `leave` is
   *  for every part of the page that has it. */
  room(name: string, options?: RoomOptions): Room;
  /** The documents of a collection: "todos", or "rooms/r1/notes" for those that belong to another document. */
  collection<Data extends object = Record<string, any>>(path: string): Collection<Data>;
  /** Writes that take effect together or not at all. */
  batch(): Batch;
  /** What RxDB's `replicateRxCollection` wants to know of a collection: `...hw.replication("todos")`. */
  replication<Data extends object = any>(collection: string): Replication<Data>;
  on(name: "state", listener: (state: State) => void): () => void;
  on(name: "error", listener: (error: HeadwaterError) => void): () => void;
  close(): void;
}

export class Room {
  readonly name: string;
  readonly member: string | null;
  readonly offset: number | null;
  /** Whose offsets they are: another text once the room was deleted and made again. */
  readonly epoch: string;
  readonly members: Map<string, any>;
  readonly cursors: Map<string, any>;
  join(): Promise<void>;
  leave(): Promise<void>;
  send(type: string, data: unknown, options?: SendOptions): Promise<Sent>;
  cursor(place: { x: number; y: number; [name: string]: unknown }): void;
  on(name: "presence", listener: (members: Map<string, any>) => void): () => void;
  on(name: "cursors", listener: (cursors: Map<string, any>) => void): () => void;
  on(name: "resync", listener: (what: Resync) => void): () => void;
  on(name: "joined", listener: (ack: { offset: number; count: number }) => void): () => void;
  on(name: "error", listener: (error: HeadwaterError) => void): () => void;
  /** "message" is every one; any other name is a type of messages. */
  on(name: string, listener: (message: Message) => void): () => void;
}

export function connect(options?: Options | string | URL): Connection;

// ── documents ──

export type Operator = "==" | "!=" | ">" | ">=" | "<" | "<=" | "in" | "contains";
/** The names of fields; those of what lies within others are written with dots. */
export type Field<Data> = (keyof (Data & Own) & string) | `${string}.${string}`;
export type Condition<Data = any> =
  | readonly [field: Field<Data>, op: Operator, value: unknown]
  | { field: Field<Data>; op: Operator; value: unknown };

/** What every document has. */
export interface Own {
  id: string;
  collection: string;
  /** From 1 on; rises by one with each write. */
  version: number;
  /** In milliseconds since 1970. */
  createdAt: number;
  updatedAt: number;
  deleted?: boolean;
}
/** A document: its own fields, flat, and what every one has. */
export type Document<Data = Record<string, any>> = Data & Own;

export interface WriteOptions<Data = any> {
  /** What must hold of the document; otherwise nothing is written, and the error has the code "precondition_failed". */
  ifMatch?: readonly Condition<Data>[];
}

export interface Found<Data> {
  documents: Document<Data>[];
  /** For `startAfter`; "" when there are no more. */
  nextCursor: string;
}

export class Query<Data extends object = Record<string, any>> {
  /** The path of the collection. */
  readonly path: string;
  where(field: Field<Data>, op: Operator, value: unknown): Query<Data>;
  /** A filter as text: `size > 10 && "new" in labels`. */
  where(filter: string): Query<Data>;
  orderBy(field: Field<Data>, direction?: "asc" | "desc"): Query<Data>;
  limit(count: number): Query<Data>;
  startAfter(cursor: string): Query<Data>;
  showDeleted(isShown?: boolean): Query<Data>;
  find(): Promise<Found<Data>>;
  all(): AsyncGenerator<Document<Data>, void>;
  /** Limits, cursors and deleted documents are of `find` only: a live query is of all that fit. */
  follow(listener?: (documents: readonly Document<Data>[]) => void): LiveQuery<Data>;
}

export class Collection<Data extends object = Record<string, any>> extends Query<Data> {
  get(id: string): Promise<Document<Data> | null>;
  create(data: Data, options?: { id?: string }): Promise<Document<Data>>;
  set(id: string, data: Data, options?: WriteOptions<Data>): Promise<Document<Data>>;
  update(id: string, data: Partial<Data>, options?: WriteOptions<Data>): Promise<Document<Data>>;
  delete(id: string, options?: WriteOptions<Data>): Promise<void>;
}

export class Batch {
  create(path: string, data: object): this;
  set(path: string, data: object, options?: WriteOptions): this;
  update(path: string, data: object, options?: WriteOptions): this;
  delete(path: string, options?: WriteOptions): this;
  /** The documents as they are then, one for each write. */
  commit(): Promise<Document[]>;
}

export class LiveQuery<Data extends object = Record<string, any>> {
  /** The documents that the query means, in its order, as far as this page knows. */
  readonly documents: readonly Document<Data>[];
  /** Resolves when they are there for the first time. */
  readonly ready: Promise<readonly Document<Data>[]>;
  stop(): void;
  on(name: "documents", listener: (documents: readonly Document<Data>[]) => void): () => void;
  /** "leave" has the document as it was last seen; `deleted` when it is known to be gone altogether. */
  on(name: "enter" | "change" | "leave", listener: (document: Document<Data>) => void): () => void;
  /** The live query is over. */
  on(name: "error", listener: (error: HeadwaterError) => void): () => void;
}

// ── replicas ──

export interface Checkpoint {
  updatedAt: number;
  id: string;
  [name: string]: unknown;
}
export type Replicated<Data> = Data & { _deleted: boolean };

export interface Pulled<Data> {
  documents: Replicated<Data>[];
  checkpoint: Checkpoint;
}

export interface Pushed<Data> {
  assumedMasterState?: Replicated<Data>;
  newDocumentState: Replicated<Data>;
}

export interface Replication<Data> {
  pull: {
    handler(checkpoint: Checkpoint | null | undefined, limit: number): Promise<Pulled<Data>>;
    /** What is written from now on; "RESYNC" says that there was a gap, and that it is time to pull. */
    stream$: {
      subscribe(
        observer:
          | ((event: Pulled<Data> | "RESYNC") => void)
          | { next(event: Pulled<Data> | "RESYNC"): void; error?(error: HeadwaterError): void },
      ): { unsubscribe(): void };
    };
  };
  /** Resolves with what is there in the place of each row that was not taken. */
  push: { handler(rows: readonly Pushed<Data>[]): Promise<Replicated<Data>[]> };
}
