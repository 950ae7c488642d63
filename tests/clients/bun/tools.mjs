// What every script of this directory works with: the package of the directory it was started in, a server by its
// port, and whatever has to be closed at the end.

import { createRequire } from 'node:module';

const require = createRequire(`${process.cwd()}/`);
export const { FlowProducer, Queue, Worker, QueueEvents, UnrecoverableError } =
  require('bunqueue/client');
const { version } = require('bunqueue/package.json');

export const ca = process.env.CORQ_TEST_CA;
export const connection = {
  host: '127.0.0.1',
  port: Number(process.argv[2]),
  ...(ca && { tls: { caFile: ca } }),
};
const DEADLINE_MS = 300_000;
// Names of jobs stand beside their data from version 3 of the protocol on.
export const modern = Number(version.split('.')[1]) >= 9;

// Whether the server takes a connection that has not told for one of version 3.
export const speaks3 = process.env.CORQ_SPEAKS === '3';

export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what, probe) {
  const end = Date.now() + DEADLINE_MS;
  while (Date.now() < end) {
    const found = await probe();
    if (found) return found;
    await sleep(10);
  }
  throw new Error(`waited ${DEADLINE_MS} ms in vain: ${what}`);
}

export const open = [];

export function queue(name, options = {}) {
  const made = new Queue(name, { connection, ...options });
  open.push(made);
  return made;
}

export function worker(name, process, options = {}) {
  const made = new Worker(name, process, { connection, pollTimeout: 200, ...options });
  made.on('error', () => {});
  open.push(made);
  return made;
}

export const counts = (jobs) => jobs.getJobCountsAsync();
