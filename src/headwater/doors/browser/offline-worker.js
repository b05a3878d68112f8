// Keeps the files of the offline list, so that the page opens without a server. The newest ones count while there is one.

const KEPT = "headwater-offline";
const PARTS = ["documents", "events", "live", "order", "room"].map(name => `../headwater/${name}.js`);
const FILES = ["offline", "offline.js", "list.css", "list-view.js", "rxdb.js", "../headwater.js", ...PARTS];

self.addEventListener("install", event => {
  self.skipWaiting();
  event.waitUntil(caches.open(KEPT).then(kept => kept.addAll(FILES)));
});
self.addEventListener("activate", event => event.waitUntil(self.clients.claim()));
self.addEventListener("fetch", event => {
  const { request } = event;
  if (request.method === "GET" && new URL(request.url).origin === location.origin) event.respondWith(answer(request));
});

async function answer(request) {
  const kept = await caches.open(KEPT);
  try {
    const found = await fetch(request);
    if (found.ok) await kept.put(request, found.clone());
    return found;
  } catch (error) {
    const known = await kept.match(request, { ignoreSearch: true });
    if (known) return known;
    throw error;
  }
}
