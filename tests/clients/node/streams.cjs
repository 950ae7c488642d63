// Events and commands through `ws`, and events through the `fetch` of Node.
//
// Usage: node streams.cjs <http port> <token>, with `ws` in NODE_PATH.
const assert = require("node:assert/strict");
const WebSocket = require("ws");

const [port, token] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const url = (path) => `ws://127.0.0.1:${port}${path}`;

async function open(path, options = {}) {
  const socket = new WebSocket(url(path), { headers, ...options });
  const messages = [];
  let wake = () => {};
  socket.on("message", (data, binary) => {
    assert(!binary);
    messages.push(JSON.parse(data));
    wake();
  });
  await new Promise((resolve, reject) => socket.on("open", resolve).on("error", reject));
  const next = async () => {
    while (messages.length === 0) await new Promise((resolve) => (wake = resolve));
    return messages.shift();
  };
  let count = 0;
  const events = [];
  const call = async (cmd, fields = {}) => {
    const reqId = `n${++count}`;
    socket.send(JSON.stringify({ cmd, reqId, ...fields }));
    for (;;) {
      const message = await next();
      if (message.reqId === reqId) return message;
      events.push(message);
    }
  };
  const event = async () => events.shift() ?? next();
  const closed = () => new Promise((resolve) => socket.on("close", resolve));
  return { socket, call, event, closed };
}

async function jobs() {
  const { socket, call, event, closed } = await open("/ws/queues/node", { perMessageDeflate: true });
  assert.equal(socket.extensions, "");
  const data = { text: "ä\n😀", list: [1, null, 0.1], time: Date.now() };
  const { id } = await call("PUSH", { queue: "node", data });
  const { job } = await call("PULL", { queue: "node" });
  assert.deepEqual(job.data, data);
  assert(Number.isSafeInteger(job.createdAt));
  assert.equal((await call("ACK", { id, result: data })).ok, true);
  assert.equal((await call("ACK", { id })).error, "Job not found or not active");
  for (const kind of ["pushed", "pulled", "completed"]) {
    const told = await event();
    assert.equal(told.eventType, kind);
    assert.equal(told.jobId, id);
  }
  await new Promise((resolve) => socket.ping("x", true, () => socket.once("pong", resolve)));
  socket.close(1000);
  assert.equal(await closed(), 1000);
}

async function codes() {
  const binary = await open("/ws");
  binary.socket.send(Buffer.from("x"));
  assert.equal(await binary.closed(), 1003);
  const invalid = await open("/ws");
  invalid.socket.send(Buffer.from([0x22, 0xff, 0x22]), { binary: false });
  assert.equal(await invalid.closed(), 1007);
  const stranger = new WebSocket(url("/ws"));
  const status = await new Promise((resolve) =>
    stranger.on("unexpected-response", (_, answer) => resolve(answer.statusCode)),
  );
  assert.equal(status, 401);
}

async function fetched() {
  const answer = await fetch(`http://127.0.0.1:${port}/events/queues/node-sse`, { headers });
  assert.equal(answer.status, 200);
  assert.equal(answer.headers.get("content-type"), "text/event-stream");
  const { socket, call } = await open("/ws/queues/nothing");
  let text = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const message = async () => {
    while (!text.includes("\n\n")) text += (await reader.read()).value;
    const end = text.indexOf("\n\n");
    const line = text.slice(0, end);
    text = text.slice(end + 2);
    return JSON.parse(line.replace(/^data: /, ""));
  };
  assert.equal((await message()).connected, true);
  const { id } = await call("PUSH", { queue: "node-sse", data: "seen" });
  const told = await message();
  assert.deepEqual([told.eventType, told.jobId, told.data], ["pushed", id, "seen"]);
  await reader.cancel();
  socket.close();
}

(async () => {
  for (const judge of [jobs, codes, fetched]) {
    await judge();
    console.log(judge.name, "ok");
  }
  // The connection that was refused is kept alive for another request.
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
