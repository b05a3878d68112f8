// A canvas that several people draw on, over rooms: shapes are messages that are kept for a while, cursors only pass.
// Who comes later asks those who are there for what they see.

import { connect } from "../headwater.js";

const COLOURS = ["#2563eb", "#db2777", "#d97706", "#059669", "#7c3aed", "#dc2626"];
const NAMES = ["Otter", "Heron", "Trout", "Beaver", "Dipper", "Newt", "Salmon", "Swift", "Vole", "Crane", "Pike", "Teal"];
const SVG = "http://www.w3.org/2000/svg";
const MOVE_MS = 60;
const SIZE = { x: 1600, y: 1000 };

const $ = selector => document.querySelector(selector);
const canvas = $("#canvas"), layer = $("#shapes"), cursors = $("#cursors");
const pick = list => list[Math.floor(Math.random() * list.length)];
const asked = new URLSearchParams(location.search);
const me = { name: asked.get("name") || pick(NAMES), colour: pick(COLOURS) };

const shapes = new Map(), drawn = new Map(), gone = new Set();
let tool = "rectangle", colour = me.colour, selected = null, gesture = null;

const hw = connect(asked.get("server") ?? undefined);
const room = hw.room(asked.get("room") || "canvas-1", { since: "beginning", profile: me });

// ── what is heard ──

hw.on("state", showState);
hw.on("error", error => showState(error.message));
room.on("object-create", ({ data }) => put(data));
room.on("object-update", ({ data }) => put(data));
room.on("object-delete", ({ data }) => remove(data?.id));
room.on("presence", showPeople);
room.on("cursors", showCursors);
room.on("joined", ({ count }) => { if (count > 1) room.send("state-wanted", null, { durability: "memory" }).catch(() => {}); });
room.on("state-wanted", ({ from }) => {
  // One answers for all: the first by name of those who were asked.
  const others = [...room.members.keys()].filter(member => member !== from).sort();
  if (from !== room.member && others[0] === room.member) {
    const state = { shapes: [...shapes.values()], gone: [...gone] };
    room.send("state", state, { durability: "memory" }).catch(() => {});
  }
});
room.on("state", ({ data }) => {
  if (!Array.isArray(data?.gone) || !Array.isArray(data.shapes)) return;
  data.gone.forEach(remove);
  for (const shape of data.shapes) if (!shapes.has(shape?.id)) put(shape);
});
room.join().catch(() => {});
showState(hw.state);

function showState(state) {
  const words = { open: "live", connecting: "connecting", waiting: "offline, trying again", closed: "closed" };
  $("#state").textContent = words[state] ?? state;
  $("#state").dataset.state = words[state] ? state : "closed";
}

function showPeople(members) {
  const items = [...members].map(([member, profile]) => {
    const item = document.createElement("li");
    item.textContent = member === room.member ? `${profile?.name ?? "?"} (you)` : profile?.name ?? "?";
    item.style.background = COLOURS.includes(profile?.colour) ? profile.colour : "#6b7280";
    return item;
  });
  $("#people").replaceChildren(...items);
}

function showCursors(places) {
  const seen = new Map([...cursors.children].map(child => [child.dataset.member, child]));
  for (const [member, { x, y }] of places) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    const mark = seen.get(member) ?? cursors.appendChild(newCursor(member));
    seen.delete(member);
    mark.style.transform = `translate(${x}px, ${y}px)`;
  }
  for (const mark of seen.values()) mark.remove();
}

function newCursor(member) {
  const profile = room.members.get(member) ?? {};
  const fill = COLOURS.includes(profile.colour) ? profile.colour : "#6b7280";
  const mark = make("g", {}), name = make("text", { x: 22, y: 40, fill });
  name.textContent = String(profile.name ?? "").slice(0, 24);
  mark.dataset.member = member;
  mark.append(make("path", { d: "M0 0l24 19-12 1.4L7 32z", fill }), name);
  return mark;
}

// ── shapes ──

function make(kind, attributes) {
  const element = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function put(change) {
  if (typeof change?.id !== "string" || gone.has(change.id)) return;
  const shape = { ...shapes.get(change.id), ...change };
  if (!isDrawable(shape)) return;
  shapes.set(shape.id, shape);
  $("#hint").hidden = true;
  const element = drawn.get(shape.id) ?? draw(shape);
  element.setAttribute("tabindex", "0");
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", shape.kind);
  const ink = COLOURS.includes(shape.colour) ? shape.colour : COLOURS[0];
  element.style.stroke = ink;
  element.style.fill = shape.kind === "pen" ? "none" : ink;
  for (const [name, value] of Object.entries(outline(shape))) element.setAttribute(name, value);
}

// Anybody may say anything, and of what is said the ids least of all are to be trusted: they are no ids of elements.
function draw(shape) {
  const element = layer.appendChild(make({ rectangle: "rect", ellipse: "ellipse", pen: "path" }[shape.kind], {}));
  Object.assign(element.dataset, { shape: shape.id, kind: shape.kind });
  drawn.set(shape.id, element);
  return element;
}

function isDrawable({ id, kind, x, y, w, h, points }) {
  const isPlaced = Number.isFinite(x) && Number.isFinite(y) && (drawn.get(id)?.dataset.kind ?? kind) === kind;
  if (kind === "pen") return isPlaced && Array.isArray(points) && points.every(Array.isArray);
  return isPlaced && (kind === "rectangle" || kind === "ellipse") && w >= 0 && h >= 0;
}

function outline({ kind, x, y, w, h, points }) {
  if (kind === "rectangle") return { x, y, width: w, height: h, rx: 10 };
  if (kind === "ellipse") return { cx: x + w / 2, cy: y + h / 2, rx: w / 2, ry: h / 2 };
  return { d: `M${points.map(([px, py]) => `${x + Number(px)} ${y + Number(py)}`).join("L")}` };
}

function remove(id) {
  if (typeof id !== "string") return;
  gone.add(id);
  shapes.delete(id);
  drawn.get(id)?.remove();
  drawn.delete(id);
  if (selected === id) select(null);
}

function select(id) {
  drawn.get(selected)?.classList.remove("selected");
  selected = id;
  drawn.get(id)?.classList.add("selected");
  $("#delete").disabled = id === null;
}

// ── what is done ──

function say(type, data) {
  room.send(type, data, { key: data.id }).catch(error => {
    // Nobody knows whether it arrived. A shape is what it is however often it is said: say it again.
    if (error.code === "connection_lost") say(type, data);
    else showState(error.message);
  });
}

function place(event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(canvas.getScreenCTM().inverse());
  return { x: Math.round(at.x), y: Math.round(at.y) };
}

canvas.addEventListener("pointerdown", event => {
  if (event.button !== 0) return;
  canvas.setPointerCapture(event.pointerId);
  const start = place(event), hit = event.target.closest("#shapes > *");
  if (tool === "select") {
    select(hit?.dataset.shape ?? null);
    const shape = shapes.get(selected);
    gesture = shape && { kind: "move", start, id: shape.id, x: shape.x, y: shape.y };
    return;
  }
  const id = crypto.randomUUID?.() ?? `s${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
  const shape = { id, kind: tool, colour, x: start.x, y: start.y, w: 0, h: 0, points: [[0, 0]] };
  gesture = { kind: "draw", start, shape };
});

canvas.addEventListener("pointermove", event => {
  const at = place(event);
  room.cursor(at);
  if (!gesture) return;
  if (gesture.kind === "move") {
    const change = { id: gesture.id, x: gesture.x + at.x - gesture.start.x, y: gesture.y + at.y - gesture.start.y };
    put(change);
    gesture.change = change;
    gesture.timer ??= setTimeout(flush, MOVE_MS);
    return;
  }
  const { shape, start } = gesture;
  if (shape.kind === "pen") {
    shape.points.push([at.x - shape.x, at.y - shape.y]);
  } else {
    Object.assign(shape, { x: Math.min(start.x, at.x), y: Math.min(start.y, at.y) });
    Object.assign(shape, { w: Math.abs(at.x - start.x), h: Math.abs(at.y - start.y) });
  }
  put({ ...shape });
});

for (const name of ["pointerup", "pointercancel"]) {
  canvas.addEventListener(name, () => {
    if (gesture?.kind === "move") flush();
    else if (gesture && shapes.has(gesture.shape.id)) finish(gesture.shape);
    gesture = null;
  });
}

function flush() {
  if (!gesture?.change) return;
  clearTimeout(gesture.timer);
  say("object-update", gesture.change);
  gesture.change = gesture.timer = undefined;
}

function finish(shape) {
  const { points, ...rest } = shape;
  const kept = shape.kind === "pen" ? { ...rest, points: points.slice(0, 2_000) } : rest;
  if (shape.kind !== "pen" && (shape.w < 4 || shape.h < 4)) return remove(shape.id);
  say("object-create", kept);
  select(shape.id);
}

function add(kind) {
  const id = `s${Date.now().toString(36)}${Math.random().toString(36).slice(2)}`;
  const at = { x: 200 + Math.round(Math.random() * (SIZE.x - 600)), y: 150 + Math.round(Math.random() * (SIZE.y - 400)) };
  const shape = { id, kind, colour, ...at, w: 220, h: 150, points: [[0, 0], [90, 60], [180, 0]] };
  put(shape);
  finish(shape);
}

function drop() {
  const id = selected;
  if (id === null) return;
  remove(id);
  say("object-delete", { id });
}

const STEPS = { ArrowLeft: [-10, 0], ArrowRight: [10, 0], ArrowUp: [0, -10], ArrowDown: [0, 10] };
const KEYS = { v: "select", r: "rectangle", o: "ellipse", p: "pen" };

addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key in KEYS) return choose(KEYS[event.key]);
  if (event.key === "Delete" || event.key === "Backspace") return drop();
  if (event.key === "Escape") return select(null);
  if (event.key === "Enter" && document.activeElement === canvas && tool !== "select") return add(tool);
  const step = STEPS[event.key], shape = shapes.get(selected);
  if (!step || !shape) return;
  event.preventDefault();
  const change = { id: shape.id, x: shape.x + step[0], y: shape.y + step[1] };
  put(change);
  say("object-update", change);
});

layer.addEventListener("focusin", event => select(event.target.dataset.shape ?? null));
$("#delete").addEventListener("click", drop);

function choose(name) {
  tool = name;
  canvas.dataset.tool = name;
  for (const button of document.querySelectorAll("[data-tool]")) {
    if (button !== canvas) button.setAttribute("aria-pressed", String(button.dataset.tool === name));
  }
}

for (const button of document.querySelectorAll("button[data-tool]")) {
  button.addEventListener("click", () => choose(button.dataset.tool));
}
for (const value of COLOURS) {
  const button = document.createElement("button");
  button.type = "button";
  button.style.setProperty("--colour", value);
  button.setAttribute("role", "radio");
  button.setAttribute("aria-label", value);
  button.setAttribute("aria-checked", String(value === colour));
  button.addEventListener("click", () => {
    colour = value;
    for (const other of button.parentElement.children) other.setAttribute("aria-checked", String(other === button));
  });
  $(".colours").append(button);
}
choose(tool);
