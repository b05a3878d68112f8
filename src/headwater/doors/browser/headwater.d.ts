/** Rooms of a Headwater server, for browsers. */

export type Durability = "memory" | "written" | "synced";
export type State = "connecting" | "open" | "waiting" | "closed";

export interface Options {
  /** The server; where the module comes from, unless it is given. */
  url?: string | URL;
  /** The token, or what gets one: a function is asked again when a token has run out. */
  token?: string | (() => string | Promise<string>);
  database?: string;
  /** A WebSocket where there is none by itself. */
  WebSocket?: typeof WebSocket;
}

export interface RoomOptions {
  /** From where on messages are wanted: behind an offset, from now on (the default), or from the oldest that is kept. */
  since?: number | "now" | "beginning";
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
  /** A code of the server, or "connection_lost", "closed", "overloaded". */
  code: string;
}

export interface Connection {
  readonly state: State;
  room(name: string, options?: RoomOptions): Room;
  on(name: "state", listener: (state: State) => void): () => void;
  on(name: "error", listener: (error: HeadwaterError) => void): () => void;
  close(): void;
}

export class Room {
  readonly name: string;
  readonly member: string | null;
  readonly offset: number | null;
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
