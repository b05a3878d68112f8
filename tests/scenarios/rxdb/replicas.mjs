// Two RxDB databases in memory that replicate one collection through a server: `node replicas.mjs <url>`.
// What they hold at each stage is printed as JSON, one line a stage.
import { createRxDatabase } from 'rxdb/plugins/core';
import { replicateRxCollection } from 'rxdb/plugins/replication';
import { getRxStorageMemory } from 'rxdb/plugins/storage-memory';

const url = process.argv[2];
const schema = {
  version: 0,
  primaryKey: 'id',
  type: 'object',
  properties: {
    id: { type: 'string', maxLength: 64 },
    text: { type: 'string' },
    tags: { type: 'array', items: { type: 'string' } },
  },
};

// Neither side loses: the tags of both, and the text that the server has.
const conflictHandler = {
  isEqual: (one, other) => JSON.stringify(sorted(one)) === JSON.stringify(sorted(other)),
  resolve: ({ newDocumentState, realMasterState }) => ({
    ...realMasterState,
    tags: [...new Set([...(realMasterState.tags ?? []), ...(newDocumentState.tags ?? [])])].sort(),
  }),
};

function sorted(document) {
  const { _rev, _meta, _attachments, ...plain } = document;
  return Object.fromEntries(Object.entries(plain).sort());
}

class Replica {
  constructor(name) {
    this.name = name;
    this.online = true;
    this.pulls = 0;
  }

  async open() {
    this.database = await createRxDatabase({ name: this.name, storage: getRxStorageMemory(), multiInstance: false });
    await this.database.addCollections({ notes: { schema, conflictHandler } });
    this.replication = replicateRxCollection({
      collection: this.database.notes,
      replicationIdentifier: 'headwater',
      live: true,
      retryTime: 50,
      pull: {
        batchSize: 3,
        handler: async (checkpoint, limit) => {
          this.pulls += 1;
          return this.ask('/replication/v1/pull', { collection: 'notes', checkpoint: checkpoint ?? null, limit });
        },
      },
      push: {
        batchSize: 3,
        handler: (rows) => this.ask('/replication/v1/push', { collection: 'notes', rows }),
      },
    });
    await this.replication.awaitInitialReplication();
  }

  async ask(path, body) {
    if (!this.online) throw new Error('offline');
    const answer = await fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw new Error(`${answer.status} ${await answer.text()}`);
    return answer.json();
  }

  async settle() {
    this.replication.reSync();
    await this.replication.awaitInSync();
  }

  get notes() {
    return this.database.notes;
  }

  async held() {
    const found = await this.notes.find({ sort: [{ id: 'asc' }] }).exec();
    return found.map((document) => document.toJSON());
  }
}

const one = new Replica('one');
const other = new Replica('other');

async function tell(stage) {
  console.log(JSON.stringify({ stage, one: await one.held(), other: await other.held(), pulls: one.pulls }));
}

async function both() {
  for (let round = 0; round < 3; round += 1) {
    await one.settle();
    await other.settle();
  }
}

await one.open();
await other.open();
await tell('begun');

await one.notes.insert({ id: 'from-one', text: 'made by one', tags: [] });
await other.notes.insert({ id: 'from-other', text: 'made by other', tags: [] });
await both();
await tell('exchanged');

one.online = false;
await (await one.notes.findOne('shared').exec()).patch({ tags: ['one'], text: 'one was offline' });
await (await one.notes.findOne('from-other').exec()).remove();
await one.notes.insert({ id: 'while-away', text: 'made offline', tags: [] });
await (await other.notes.findOne('shared').exec()).patch({ tags: ['other'], text: 'other was here' });
await other.settle();
await tell('apart');

one.online = true;
await both();
await both();
await tell('together');
await one.database.close();
await other.database.close();
