// What both to-do lists look like. Where the items come from, and where changes go, is said by who shows them:
//
//   const view = showList({ add(text), update(item, fields), remove(item), clear(items) });
//   view.items(items);                the items as they are now, in their order
//   view.state("open", "live");       a colour and a word for the connection
//   view.say("something went wrong");

const $ = selector => document.querySelector(selector);
const FILTERS = { all: () => true, open: item => !item.done, done: item => item.done };
const NOTICE_MS = 6_000;

export function showList(actions) {
  const list = $("#items"), text = $("#text");
  let items = [], filter = "all", notice = null;

  // An action that fails says why; what was typed is not lost by it.
  const attempt = async action => {
    try {
      await action();
      return true;
    } catch (error) {
      say(error.code === "connection_lost" ? "Not saved: there is no connection." : error.message);
      return false;
    }
  };

  $("#new").addEventListener("submit", async event => {
    event.preventDefault();
    const value = text.value.trim();
    if (value && await attempt(() => actions.add(value)) && text.value.trim() === value) text.value = "";
  });
  $("#clear").addEventListener("click", () => attempt(() => actions.clear(items.filter(FILTERS.done))));
  for (const button of document.querySelectorAll("[data-filter]")) {
    button.addEventListener("click", () => {
      filter = button.dataset.filter;
      for (const other of document.querySelectorAll("[data-filter]")) {
        other.setAttribute("aria-pressed", String(other === button));
      }
      draw();
    });
  }

  function draw() {
    const shown = items.filter(FILTERS[filter]), wanted = new Set(shown.map(item => item.id));
    // First what is gone: whatever has to move for another reason lights up as new.
    for (const row of [...list.children]) if (!wanted.has(row.dataset.id)) row.remove();
    const known = new Map([...list.children].map(row => [row.dataset.id, row]));
    shown.forEach((item, place) => {
      const row = known.get(item.id) ?? newRow(item.id);
      if (list.children[place] !== row) list.insertBefore(row, list.children[place] ?? null);
      fill(row, item);
    });
    const open = items.filter(FILTERS.open).length;
    $("#count").textContent = items.length === 0 ? "" : `${open} of ${items.length} to do`;
    $("#clear").hidden = open === items.length;
    $("#empty").hidden = shown.length > 0;
    $("#empty").textContent = items.length > 0 ? "Nothing here." : "Nothing to do yet. What you add, everybody sees at once.";
  }

  function newRow(id) {
    const row = $("#item").content.firstElementChild.cloneNode(true);
    row.dataset.id = id;
    const item = () => items.find(one => one.id === id);
    const done = row.querySelector(".done"), words = row.querySelector(".words");
    done.addEventListener("change", async () => {
      if (!await attempt(() => actions.update(item(), { done: done.checked }))) draw();
    });
    words.addEventListener("change", async () => {
      const value = words.value.trim();
      if (!value || !await attempt(() => actions.update(item(), { text: value }))) fill(row, item(), true);
    });
    words.addEventListener("keydown", event => {
      if (event.key === "Escape") words.value = item().text;
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      words.blur();
    });
    row.querySelector(".remove").addEventListener("click", () => attempt(() => actions.remove(item())));
    return row;
  }

  function fill(row, item, isForced = false) {
    if (!item) return;
    const words = row.querySelector(".words"), done = row.querySelector(".done");
    row.classList.toggle("is-done", item.done === true);
    done.checked = item.done === true;
    done.setAttribute("aria-label", `Done: ${item.text}`);
    // Who is typing is not interrupted.
    if (isForced || document.activeElement !== words) words.value = String(item.text ?? "");
    row.querySelector(".remove").setAttribute("aria-label", `Delete ${item.text}`);
  }

  function say(words) {
    clearTimeout(notice);
    $("#notice").textContent = words;
    $("#notice").hidden = words === "";
    notice = setTimeout(() => { $("#notice").hidden = true; }, NOTICE_MS);
  }

  return {
    items(found) {
      items = [...found];
      draw();
    },
    state(state, words) {
      $("#state").dataset.state = state;
      $("#state").textContent = words;
    },
    say,
  };
}

/** An id that nobody else has made. */
export function newId() {
  return crypto.randomUUID?.() ?? `t${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
}
