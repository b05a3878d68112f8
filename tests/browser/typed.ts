// Every call of headwater.js as a typed program writes it. It is only compiled: what may not be said is marked.
import { connect, HeadwaterError, LiveQuery, Query, Room } from "./headwater.js";
import type { Collection, Condition, Connection, Document, Message, Pulled } from "./headwater.js";

interface Todo {
  text: string;
  done: boolean;
  at?: { city: string };
}

export async function documents(hw: Connection): Promise<void> {
  const todos: Collection<Todo> = hw.collection<Todo>("lists/house/todos");
  const made: Document<Todo> = await todos.create({ text: "Milk", done: false }, { id: "a" });
  const version: number = made.version + made.createdAt + made.updatedAt;
  const same: Document<Todo> | null = await todos.get(made.id);
  const conditions: Condition<Todo>[] = [["version", "==", version], { field: "at.city", op: "!=", value: "Graz" }];
  await todos.set("a", { text: same?.text ?? "", done: true }, { ifMatch: conditions });
  await todos.update("a", { done: true }, { ifMatch: [["text", "==", "Milk"]] });
  const nothing: void = await todos.delete("a");
  const query: Query<Todo> = todos.where("done", "==", false).where("size(text) > 3").orderBy("createdAt", "desc");
  const found = await query.limit(10).startAfter("cursor").showDeleted().find();
  const texts: string[] = found.documents.map(one => one.text);
  for await (const one of query.all()) texts.push(one.text, found.nextCursor);
  const written: Document[] = await hw.batch().create("t/a", {}).set("t/b", {}).update("t/a", {}).delete("t/b").commit();
  void [nothing, written];

  // @ts-expect-error a field that is missing
  await todos.create({ text: "Milk" });
  // @ts-expect-error a field of another type
  await todos.update("a", { done: "yes" });
  // @ts-expect-error a field that nobody knows
  todos.where("colour", "==", "red");
  // @ts-expect-error an operator that there is not
  todos.where("text", "like", "x");
  // @ts-expect-error a direction that there is not
  todos.orderBy("text", "up");
  // @ts-expect-error the document may be missing
  (await todos.get("a")).text;
}

export function live(hw: Connection): void {
  const following: LiveQuery<Todo> = hw.collection<Todo>("todos").follow(all => all.map(one => one.text.length));
  const off: () => void = following.on("documents", all => all[0]?.done);
  following.on("enter", one => one.text);
  following.on("leave", one => one.deleted === true);
  following.on("error", error => error.code);
  following.ready.then(all => all.length);
  following.stop();
  off();
  // @ts-expect-error the documents of a live query are its own
  following.documents.push({} as Document<Todo>);
  // @ts-expect-error an event that there is not
  following.on("entered", () => {});
}

export async function replicas(hw: Connection): Promise<void> {
  const { pull, push } = hw.replication<Todo & { id: string }>("todos");
  const pulled: Pulled<Todo & { id: string }> = await pull.handler(null, 100);
  await pull.handler(pulled.checkpoint, 100);
  const stream = pull.stream$.subscribe({ next: event => (event === "RESYNC" ? 0 : event.documents.length) });
  stream.unsubscribe();
  const conflicts = await push.handler([{ newDocumentState: pulled.documents[0]! }]);
  conflicts.map(one => one._deleted);
}

export async function rooms(hw: Connection): Promise<void> {
  const room: Room = hw.room("page", { since: "beginning", profile: { name: "Ada" } });
  room.on("test", (message: Message<string>) => message.data.length);
  await room.join();
  const { offset } = await room.send("test", "Hello", { durability: "synced" });
  void offset;
}

export function begin(): Connection {
  const hw = connect({ url: "https://example.org", token: async () => "secret", database: "shop" });
  hw.on("state", state => state === "open");
  hw.on("error", (error: HeadwaterError) => error.code);
  return hw;
}
