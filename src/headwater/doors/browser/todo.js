// A to-do list that everybody on the page sees, on a live query alone: the list is what the query means, and writing to
// a document is all there is to changing it.

import { connect } from "../headwater.js";
import { showList } from "./list-view.js";

const WORDS = { open: "live", connecting: "connecting", waiting: "offline, trying again", closed: "closed" };

const asked = new URLSearchParams(location.search);
const hw = connect();
const todos = hw.collection(`lists/${asked.get("list") || "demo"}/todos`);

const view = showList({
  add: text => todos.create({ text, done: false, at: Date.now() }),
  // Two who tick a box mean the same; two who write another text do not, and the second is told.
  update: (item, fields) => todos.update(item.id, fields, { ifMatch: "text" in fields ? [["text", "==", item.text]] : [] })
    .catch(error => { throw error.code === "precondition_failed" ? new Error("Somebody else changed it first.") : error; }),
  remove: item => todos.delete(item.id).catch(error => { if (error.code !== "document_missing") throw error; }),
  clear: items => items.reduce((batch, item) => batch.delete(`${todos.path}/${item.id}`), hw.batch()).commit(),
});

hw.on("state", state => view.state(state, WORDS[state]));
view.state(hw.state, WORDS[hw.state]);
todos.orderBy("at").follow(view.items).on("error", error => view.say(error.message));
