// What others do for a room: whatever one client says goes to everybody. `node node_rooms.js ws|socket.io PORT`.
const [, , kind, port] = process.argv;

if (kind === "ws") {
  const { WebSocketServer } = require("ws");
  const server = new WebSocketServer({ host: "127.0.0.1", port: Number(port), perMessageDeflate: false });
  server.on("connection", (socket) => {
    socket.on("message", (data) => {
      for (const client of server.clients) client.send(data, { binary: false });
    });
  });
} else {
  const { Server } = require("socket.io");
  const server = new Server(Number(port), { transports: ["websocket"], pingInterval: 600000 });
  server.on("connection", (socket) => {
    socket.join("wide");
    socket.on("say", (data) => server.to("wide").emit("said", data));
  });
}
