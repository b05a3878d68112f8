"""The module for pages, in node with a clock of the test's own: how often a cursor that moves all the time is sent."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.node import place_client

# A clock that is wound by hand, a socket that notes what is sent, and a mouse that moves each millisecond for a second.
SCRIPT = """
let now = 0;
const timers = [];
globalThis.setTimeout = (call, ms = 0) => { const timer = { at: now + ms, call }; timers.push(timer); return timer; };
globalThis.clearTimeout = timer => { const place = timers.indexOf(timer); if (place >= 0) timers.splice(place, 1); };
const wind = () => {
  now += 1;
  for (const timer of timers.filter(one => one.at <= now)) { clearTimeout(timer); timer.call(); }
};
const sent = [];
class Socket {
  static OPEN = 1;
  OPEN = 1;
  readyState = 1;
  bufferedAmount = 0;
  constructor() { queueMicrotask(() => this.#happen("open", {})); }
  #listeners = {};
  addEventListener(name, listener) { (this.#listeners[name] ??= []).push(listener); }
  #happen(name, event) {
    for (const listener of this.#listeners[name] ?? []) listener(event);
    this["on" + name]?.(event);
  }
  send(text) {
    const message = JSON.parse(text);
    sent.push(message);
    const payload = { room: "a", offset: -1, member: "m", members: [], count: 0 };
    if (message.type === "join")
      this.#happen("message", { data: JSON.stringify({ id: message.id, type: "join_ack", payload }) });
    if (message.type === "auth")
      this.#happen("message", { data: JSON.stringify({ id: message.id, type: "auth_ack", payload: {} }) });
  }
  close() {}
}
const { connect } = await import("./headwater.js");
const room = connect({ url: "http://127.0.0.1:1", WebSocket: Socket }).room("a");
const joining = room.join();
for (let turn = 0; turn < 50; turn += 1) await null;
await joining;
for (let x = 1; x <= 1000; x += 1) { room.cursor({ x, y: 0 }); wind(); }
for (let rest = 0; rest < 100; rest += 1) wind();
const cursors = sent.filter(one => one.type === "send" && one.payload.type === "cursor").map(one => one.payload.data.x);
console.log(JSON.stringify(cursors));
process.exit(0);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_a_cursor_that_moves_all_the_time_is_sent_thirty_times_a_second(tmp_path: Path) -> None:
    """S0-36: the latest place each time, and the last one for sure."""
    script = place_client(tmp_path) / "cursor.mjs"
    script.write_text(SCRIPT)
    found = subprocess.run(["node", str(script)], capture_output=True, text=True, timeout=60, check=True)
    places = json.loads(found.stdout)
    assert 28 <= len(places) <= 31
    assert places == sorted(places)
    assert places[-1] == 1_000
