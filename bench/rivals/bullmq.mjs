// A load client for BullMQ by its own library, driven by the same lines as `client/` (its main.rs tells
// them): a command comes in, {"ready":true} goes out, and at the line `go` the work begins.
//
// Queues add with as many calls in flight as asked, or with addBulk; Workers run with that
// concurrency and remove what is completed. BullMQ has no batches on the worker's side.

import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';
import path from 'node:path';

const require = createRequire(path.join(process.env.RIVALS_NPM, 'package.json'));
const { Queue, Worker } = require('bullmq');

const [port, payloadBytes] = process.argv.slice(2).map(Number);
const connection = { host: '127.0.0.1', port };
const CONNECTIONS = 4;
const STATES = ['waiting', 'active', 'delayed', 'prioritized', 'completed', 'failed', 'paused'];
// Nothing is kept of a job that is done: the least that Redis can be asked to do.
const OPTIONS = { removeOnComplete: true };

const names = Array.from({ length: 2 * CONNECTIONS }, (_, index) => `q${index}`);
const queues = names.map((name) => new Queue(name, { connection }));
const closed = queues.slice(0, CONNECTIONS);
const open = queues.slice(CONNECTIONS, CONNECTIONS + CONNECTIONS / 2);

// Exactly once: a byte per job that was pushed.
let seen = new Uint8Array(1 << 16);
let given = 0;
let received = 0;
let twice = 0;
let strange = 0;
let failed = 0;

function payload(sentMs) {
  if (given === seen.length) {
    const longer = new Uint8Array(seen.length * 2);
    longer.set(seen);
    seen = longer;
  }
  const data = { s: given, t: sentMs, p: '' };
  given += 1;
  // As JSON, which is how it travels, the payload has the bytes that were asked for.
  data.p = 'x'.repeat(Math.max(0, payloadBytes - JSON.stringify(data).length));
  return data;
}

function note(sequence) {
  if (!Number.isInteger(sequence) || sequence < 0 || sequence >= given) {
    strange += 1;
  } else if (seen[sequence]) {
    twice += 1;
  } else {
    seen[sequence] = 1;
    received += 1;
  }
}

const now = () => performance.now();
const share = (jobs, index, of) => Math.floor(jobs / of) + (index < jobs % of ? 1 : 0);

/** Pushes a queue's share with `window` calls in flight. */
async function pushShare(queue, jobs, { window, batch }) {
  let left = jobs;
  const lane = async () => {
    while (left > 0) {
      const count = Math.min(batch, left);
      left -= count;
      if (batch > 1) {
        const job = () => ({ name: 'job', data: payload(now()), opts: OPTIONS });
        await queue.addBulk(Array.from({ length: count }, job));
      } else {
        await queue.add('job', payload(now()), OPTIONS);
      }
    }
  };
  await Promise.all(Array.from({ length: window }, lane));
}

/** Workers on the queues; `done` resolves when they have completed `jobs`. */
async function workers(on, concurrency, jobs, received) {
  let completed = 0;
  let finish;
  const done = new Promise((resolve) => (finish = resolve));
  const started = on.map((queue) => {
    const work = async (job) => {
      note(job.data.s);
      received?.(job.data.t);
    };
    const worker = new Worker(queue.name, work, { connection, concurrency, autorun: false });
    worker.on('completed', () => (++completed === jobs ? finish() : undefined));
    worker.on('failed', () => (failed += 1));
    worker.on('error', fail);
    return worker;
  });
  await Promise.all(started.map((worker) => worker.waitUntilReady()));
  return { started, done };
}

const run = (started) => started.forEach((worker) => void worker.run().catch(fail));

const commands = {
  async push(command, go) {
    await go();
    const start = now();
    const parts = closed.map((queue, index) => share(command.jobs, index, closed.length));
    await Promise.all(closed.map((queue, index) => pushShare(queue, parts[index], command)));
    return report(command.jobs, now() - start);
  },

  async take(command, go) {
    const before = received;
    const { started, done } = await workers(closed, command.window, command.jobs);
    await go();
    const start = now();
    run(started);
    await done;
    const outcome = report(received - before, now() - start, command.jobs);
    return { outcome, after: () => Promise.all(started.map((worker) => worker.close())) };
  },

  async open(command, go) {
    const times = [];
    const receipt = (sent) => times.push((now() - sent) * 1000);
    const before = received;
    const { started, done } = await workers(open, 25, command.jobs, receipt);
    await go();
    run(started);
    const start = now();
    const due = (number) => start + (number * 1000) / command.rate;
    for (let next = 0; next < command.jobs; ) {
      while (next < command.jobs && due(next) <= now()) {
        open[next % open.length].add('job', payload(due(next)), OPTIONS).catch(fail);
        next += 1;
      }
      // A timer of Node is a millisecond late; a turn of its loop is not.
      await new Promise(setImmediate);
    }
    await done;
    const outcome = report(received - before, now() - start, command.jobs);
    times.sort((a, b) => a - b);
    const at = (quantile) => times[Math.min(times.length - 1, Math.floor(times.length * quantile))];
    outcome.receipt_us = { p50: at(0.5), p99: at(0.99), max: times[times.length - 1] };
    return { outcome, after: () => Promise.all(started.map((worker) => worker.close())) };
  },

  async left() {
    const counts = await Promise.all(queues.map((queue) => queue.getJobCounts(...STATES)));
    const left = counts.flatMap(Object.values).reduce((sum, count) => sum + count, 0);
    return { left, missing: given - received };
  },
};

function report(done, milliseconds, asked = done) {
  const problems = [];
  if (twice) problems.push(`${twice} jobs were received twice`);
  if (strange) problems.push(`${strange} jobs were received that nobody pushed`);
  if (failed) problems.push(`${failed} jobs failed`);
  if (done !== asked) problems.push(`${done} of ${asked} jobs were done`);
  return { jobs: done, seconds: milliseconds / 1000, problems };
}

const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);

function fail(error) {
  say({ error: String(error?.message ?? error) });
  process.exit(1);
}

async function main() {
  await Promise.all(queues.map((queue) => queue.waitUntilReady()));
  say({ connected: queues.length });
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const go = async () => {
    say({ ready: true });
    const { value } = await lines.next();
    if (value !== 'go') throw new Error('expected the line go');
  };
  for (;;) {
    const { value, done } = await lines.next();
    if (done) break;
    const command = JSON.parse(value);
    const made = await commands[command.do](command, go);
    say(made.outcome ?? made);
    await made.after?.();
  }
  process.exit(0);
}

main().catch(fail);
