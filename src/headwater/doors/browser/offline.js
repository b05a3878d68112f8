// The same to-do list, offline first: RxDB keeps it in the browser, and exchanges what is new with the server whenever
// there is one. RxDB is no part of Headwater; `script/rxdb` fetches it, and the server has it at /demo/rxdb.js.

import { connect } from "../headwater.js";
import { newId, showList } from "./list-view.js";

const WORDS = { open: "in sync", connecting: "connecting", waiting: "offline: changes are kept here", closed: "offline" };
const RETRY_MS = 1_000;

const schema = {
  version: 0,
  primaryKey: "id",
  type: "object",
  properties: {
    id: { type: "string", maxLength: 64 },
    text: { type: "string" },
    done: { type: "boolean" },
    at: { type: "number" },
  },
};

// Both have changed an item since they last agreed: what only one of them touched is theirs, and where both did, the
// server's is kept. A delete wins.
const conflictHandler = {
  isEqual: (one, other) => Object.keys({ ...schema.properties, _deleted: 0 }).every(name => one[name] === other[name]),
  resolve({ assumedMasterState: base = {}, newDocumentState: mine, realMasterState: theirs }) {
    const merged = { ...mine, ...theirs };
    for (const name of Object.keys(schema.properties)) if (theirs[name] === base[name]) merged[name] = mine[name];
    return { ...merged, _deleted: mine._deleted || theirs._deleted };
  },
};

const list = new URLSearchParams(location.search).get("list") || "demo";
let hw = null, replication = null;

async function start({ addRxPlugin, createRxDatabase, getRxStorageDexie, replicateRxCollection, RxDBLeaderElectionPlugin }) {
  addRxPlugin(RxDBLeaderElectionPlugin);
  const name = `headwater-${list.toLowerCase().replace(/[^a-z0-9]/g, "-")}`;
  const database = await createRxDatabase({ name, storage: getRxStorageDexie() });
  const { todos } = await database.addCollections({ todos: { schema, conflictHandler } });

  const view = showList({
    add: text => todos.insert({ id: newId(), text, done: false, at: Date.now() }),
    update: async (item, fields) => (await todos.findOne(item.id).exec())?.incrementalPatch(fields),
    remove: async item => (await todos.findOne(item.id).exec())?.incrementalRemove(),
    clear: items => todos.bulkRemove(items.map(item => item.id)),
  });
  todos.find().$.subscribe(found => {
    const items = found.map(one => one.toJSON());
    view.items(items.sort((one, other) => one.at - other.at || (one.id < other.id ? -1 : 1)));
  });

  const goOnline = () => {
    hw = connect();
    hw.on("state", state => view.state(state, WORDS[state]));
    view.state(hw.state, WORDS[hw.state]);
    replication = replicateRxCollection({
      collection: todos,
      replicationIdentifier: `headwater-${list}`,
      retryTime: RETRY_MS,
      ...hw.replication(`lists/${list}/todos`),
    });
  };
  const goOffline = async () => {
    await replication.cancel();
    hw.close();
  };

  const network = document.querySelector("#network");
  network.hidden = false;
  network.addEventListener("click", async () => {
    const isOnline = network.getAttribute("aria-pressed") === "false";
    network.setAttribute("aria-pressed", String(isOnline));
    network.textContent = isOnline ? "Go online" : "Go offline";
    if (isOnline) await goOffline();
    else goOnline();
  });
  goOnline();
}

// With this the page opens without a server, too. It needs https, or an address of this machine.
navigator.serviceWorker?.register("offline-worker.js", { scope: "offline" }).catch(() => {});
const rxdb = await import("./rxdb.js").catch(error => { fail("RxDB is missing", error); });
if (!rxdb) document.querySelector("#missing").hidden = false;
else await start(rxdb).catch(error => fail(`this browser cannot keep the list: ${error.message.slice(0, 200)}`, error));

function fail(words, error) {
  document.querySelector("#state").textContent = words;
  document.querySelector("#state").dataset.state = "closed";
  for (const part of ["#new", "footer"]) document.querySelector(part).hidden = true;
  console.warn(error);
}
