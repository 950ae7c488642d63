// The npm client of this protocol, unmodified, against the real server. Run by bun, from a directory that has
// the package:
//
//   suite.mjs PORT              everything but the restart; or, with a part of their names, some promises
//   suite.mjs PORT restart      asks, by the line "kill", for the server to be killed and started again under
//                               running workers, and reads a line when that is done
//   suite.mjs PORT wrong        shows a wrong token to a guarded server, then the right one, which is "secret"
//
// With CORQ_TEST_CA, the file of an authority, all of it goes over TLS.
//
// What a release does not have is left out by asking for it, so one script tries them all.

import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';

import { promises as calls } from './calls.mjs';
import { promises as flows } from './flows.mjs';
import { promises as groups } from './groups.mjs';
import { promises as handling } from './handling.mjs';
import { promises as jobs } from './jobs.mjs';
import { promises as queues } from './queues.mjs';
import { ca, connection, counts, Queue, modern, open, queue, sleep, until, worker } from './tools.mjs';

const mode = process.argv[3];

/** Workers live through kills of the server, and nothing acknowledged is missing. */
async function restart() {
  const jobs = queue('bun-restart');
  const entries = Array.from({ length: 300 }, (_, n) => ({
    name: 'job',
    data: { n },
    opts: { attempts: 10, durable: true },
  }));
  const ids = (await jobs.addBulk(entries)).map((job) => job.id);
  const done = [];
  const work = async (job) => {
    await sleep(2);
    done.push(job.data.n);
    return { n: job.data.n };
  };
  for (let n = 0; n < 2; n++) worker('bun-restart', work, { concurrency: 3, lockDuration: 5000 });
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  for (const part of [1, 2]) {
    await until('some jobs', async () => done.length > (part * ids.length) / 4);
    console.log('kill');
    await lines.next();
  }
  await until('all jobs', async () => {
    try {
      return (await counts(jobs)).completed === ids.length;
    } catch {
      return false;
    }
  });
  console.log('done');
}

async function wrongToken() {
  const stranger = new Queue('bun-guarded', { connection: { ...connection, token: 'wrong' } });
  await assert.rejects(stranger.add('no', {}));
  stranger.close();
  const friend = new Queue('bun-guarded', { connection: { ...connection, token: 'secret' } });
  assert.ok((await friend.add('yes', {})).id);
  friend.close();
}

let failed = 0;
if (mode === 'restart') {
  await restart();
} else if (mode === 'wrong') {
  await wrongToken();
} else {
  // The producer of flows at 2.8 takes no TLS.
  const parts = [jobs, handling, queues, calls, groups, ...(modern || !ca ? [flows] : [])];
  for (const [name, promise] of parts.flatMap((part) => Object.entries(part))) {
    if (mode && !name.includes(mode)) continue;
    try {
      await promise();
      console.log(`ok      ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED  ${name}\n${error.stack}`);
    }
  }
}
for (const each of open) await Promise.race([each.close(), sleep(3000)]);
process.exit(failed > 0 ? 1 : 0);
