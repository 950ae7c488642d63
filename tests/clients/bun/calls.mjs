// Calls whose documentation promises more than that a job runs: options that a processor reads, jobs between two attempts, moves
// of jobs that a worker has, counts and figures. Most of them came with version 3 of the protocol.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import {
  ca,
  connection,
  counts,
  QueueEvents,
  modern,
  open,
  queue,
  speaks3,
  until,
  worker,
} from './tools.mjs';

const HOUR_MS = 3_600_000;
const directory = dirname(createRequire(`${process.cwd()}/`).resolve('bunqueue/package.json'));
const program = join(directory, 'dist/cli/index.js');

/** A job that is taken by hand: no worker runs it. */
async function take(name) {
  const hand = worker(name, async () => {}, { autorun: false, lockDuration: 60_000 });
  return [await until('a job', () => hand.getNextJob()), hand];
}

export const promises = {
  async 'a job needs no data'() {
    const jobs = queue('bun-bare');
    const one = await jobs.add('tick');
    const many = await jobs.addBulk([{ name: 'tick' }, { name: 'tock', data: null }]);
    const seen = [];
    const busy = worker('bun-bare', async (job) => seen.push([job.name, job.data]));
    await until('three jobs', async () => seen.length === 3);
    assert.equal(new Set([one, ...many].map((job) => job.id)).size, 3);
    if (modern) assert.ok(seen.every(([, data]) => data === null || data === undefined), JSON.stringify(seen));
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'a job repeats by a pattern in its zone as often as its limit says'() {
    const jobs = queue('bun-pattern');
    await jobs.add('tick', {}, { repeat: { pattern: '* * * * * *', tz: 'Asia/Kathmandu', limit: 2 } });
    let runs = 0;
    const busy = worker('bun-pattern', async () => (runs += 1));
    await until('both runs', async () => runs === 2 && (await counts(jobs)).completed === 2);
    const { waiting, delayed } = await counts(jobs);
    assert.deepEqual([waiting, delayed], [0, 0]);
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'a processor sees the options of its job, and a query all of them'() {
    const jobs = queue('bun-seen');
    const given = {
      attempts: 4,
      backoff: { type: 'exponential', delay: 70 },
      timeout: 60_000,
      jobId: 'bun-seen-1',
      lifo: true,
      stackTraceLimit: 3,
    };
    const added = await jobs.add('given', {}, given);
    const found = (await jobs.getJob(added.id)).opts;
    assert.deepEqual(Object.fromEntries(Object.keys(given).map((name) => [name, found[name]])), given);
    const seen = [];
    const busy = worker('bun-seen', async (job) => seen.push(job.opts));
    await until('its options', async () => seen.length === 1);
    // Of the others the client shows a processor none.
    const { attempts, backoff, timeout, jobId } = seen[0];
    assert.deepEqual([attempts, backoff, timeout, jobId], [4, 70, 60_000, 'bun-seen-1']);
    await jobs.add('keyed', {}, { deduplication: { id: 'k', ttl: HOUR_MS } });
    await until('its key', async () => seen.length === 2);
    if (modern) assert.deepEqual([seen[0].deduplication, seen[1].deduplication?.id], [undefined, 'k']);
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'a plain job shows no options that it was not given'() {
    const jobs = queue('bun-plain');
    const plain = await jobs.add('plain', {});
    const found = await jobs.getJob(plain.id);
    assert.ok(!found.opts.deduplication?.id, JSON.stringify(found.opts));
    if (modern) assert.equal(found.opts.deduplication, undefined);
    assert.equal(found.deduplicationId, undefined);
    assert.equal(found.delay, 0);
    const old = await jobs.add('old', {}, { timestamp: 946_684_800_000 });
    assert.equal((await jobs.getJob(old.id)).delay, 0);
    await jobs.obliterateAsync();
  },

  async 'a job between two attempts says how it failed'() {
    const jobs = queue('bun-between');
    const added = await jobs.add('breaks', {}, { attempts: 3, backoff: HOUR_MS });
    const busy = worker('bun-between', async () => {
      throw new Error('no disk');
    });
    await until('the first failure', async () => (await jobs.getJobState(added.id)) === 'delayed');
    await busy.close();
    if (!modern) return;
    const found = await jobs.getJob(added.id);
    assert.equal(found.failedReason, 'no disk');
    assert.match(found.stacktrace[0], /no disk/);
    assert.equal(found.attemptsMade, 1);
    await jobs.obliterateAsync();
  },

  async 'a dead letter has every attempt'() {
    const jobs = queue('bun-attempts');
    if (!jobs.getDlqAsync) return;
    let runs = 0;
    const busy = worker('bun-attempts', async () => {
      throw new Error(`failure ${(runs += 1)}`);
    });
    await jobs.add('breaks', {}, { attempts: 3, backoff: 1 });
    await until('its end', async () => (await counts(jobs)).failed === 1);
    await busy.close();
    const [entry] = await jobs.getDlqAsync();
    assert.deepEqual(entry.attempts.map(({ error }) => error), ['failure 1', 'failure 2', 'failure 3']);
    await jobs.obliterateAsync();
  },

  async 'a job is added for a parent that waits'() {
    if (!modern) return;
    const [parents, children] = [queue('bun-for-parents'), queue('bun-for-children')];
    const parent = await parents.add('whole', { n: 1 });
    const of = (id) => ({ parent: { id, queue: 'bun-for-parents' } });
    const child = await children.add('part', { n: 2 }, of(parent.id));
    assert.equal(await parents.getJobState(parent.id), 'waiting-children');
    await assert.rejects(children.add('part', {}, of('nobody')));
    const busy = [
      worker('bun-for-children', async (job) => job.data.n * 2),
      worker('bun-for-parents', async (job) => job.getChildrenValues()),
    ];
    await until('the parent', async () => (await parents.getJobState(parent.id)) === 'completed');
    const { returnvalue } = await parents.getJob(parent.id);
    assert.deepEqual(returnvalue, { [`bun-for-children:${child.id}`]: 4 });
    for (const each of busy) await each.close();
    const active = await parents.add('whole', { n: 1 });
    const [taken, hand] = await take('bun-for-parents');
    assert.equal(taken.id, active.id);
    await assert.rejects(children.add('part', {}, of(active.id)));
    await hand.close();
    for (const each of [parents, children]) await each.obliterateAsync();
  },

  async 'a job that a worker has is moved by its token alone'() {
    if (!modern) return;
    const jobs = queue('bun-token');
    const added = await jobs.add('held', {});
    const [taken, hand] = await take('bun-token');
    const wrong = '4e9bcd5c-8d3f-4b6a-9b3a-2f0e5f7b9c11';
    const later = Date.now() + HOUR_MS;
    await assert.rejects(jobs.moveJobToDelayed(added.id, later, wrong));
    // The client passes over a refusal of this one.
    if (speaks3) await jobs.changeJobDelay(added.id, HOUR_MS);
    assert.equal(await jobs.getJobState(added.id), 'active');
    await jobs.moveJobToDelayed(added.id, later, taken.token);
    assert.equal(await jobs.getJobState(added.id), 'delayed');
    await hand.close();
    await jobs.obliterateAsync();
  },

  async 'a job without children is not told to wait for them'() {
    if (!modern) return;
    const jobs = queue('bun-childless');
    const added = await jobs.add('alone', {});
    const [taken, hand] = await take('bun-childless');
    const moved = await jobs.moveJobToWaitingChildren(added.id, taken.token).catch(() => false);
    assert.equal(moved, false);
    await jobs.moveJobToCompleted(added.id, 'done', taken.token);
    assert.equal(await jobs.getJobState(added.id), 'completed');
    await hand.close();
    await jobs.obliterateAsync();
  },

  async 'a job that waits is put off to a time'() {
    const jobs = queue('bun-put-off-to');
    const added = await jobs.add('later', {});
    await jobs.moveJobToDelayed(added.id, Date.now() + HOUR_MS);
    assert.equal(await jobs.getJobState(added.id), 'delayed');
    await jobs.obliterateAsync();
  },

  async 'odd numbers are taken for what they mean'() {
    if (!modern) return;
    const jobs = queue('bun-odd');
    const soon = await jobs.add('soon', {}, { delay: -5 });
    assert.equal(await jobs.getJobState(soon.id), 'waiting');
    const later = await jobs.add('later', {}, { delay: HOUR_MS + 0.5 });
    assert.equal(await jobs.getJobState(later.id), 'delayed');
    await jobs.removeAsync(later.id);
    let runs = 0;
    const busy = worker('bun-odd', async () => {
      runs += 1;
      throw new Error('once');
    });
    await until('the first one', async () => runs >= 1);
    await jobs.drainAsync();
    const before = runs;
    const once = await jobs.add('once', {}, { attempts: 0, backoff: 1 });
    await until('its end', async () => (await jobs.getJobState(once.id)) === 'failed');
    assert.equal((await jobs.getJob(once.id)).attemptsMade, 1);
    assert.ok(runs > before);
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'jobs are counted, cleaned and drained by the words of the client'() {
    if (!modern) return;
    const jobs = queue('bun-words');
    const fill = async () => {
      for (const opts of [{}, { priority: 5 }, { delay: HOUR_MS }]) await jobs.add('one', {}, opts);
    };
    await fill();
    const found = await counts(jobs);
    assert.deepEqual([found.waiting, found.prioritized, found.delayed], [1, 1, 1]);
    assert.equal(await jobs.getPrioritizedCount(), 1);
    assert.equal(await jobs.countAsync(), 3);
    assert.deepEqual(await jobs.getCountsPerPriorityAsync(), { 0: 2, 5: 1 });
    assert.equal((await jobs.cleanAsync(0, 10, 'prioritized')).length, 1);
    assert.equal((await jobs.cleanAsync(0, 10, 'wait')).length, 1);
    await jobs.pauseAsync();
    await fill();
    assert.equal((await counts(jobs)).paused, 2);
    assert.equal((await jobs.cleanAsync(0, 10, 'paused')).length, 2);
    await jobs.resumeAsync();
    await fill();
    await jobs.drainAsync();
    assert.equal(await jobs.countAsync(), 0);
    await jobs.obliterateAsync();
  },

  async 'what is not known has no values, and a limit for no time lasts a second'() {
    if (!modern) return;
    const jobs = queue('bun-unknown');
    assert.deepEqual(await jobs.getChildrenValues('nobody'), {});
    await jobs.setGlobalRateLimitAsync(5, 0);
    assert.deepEqual(await jobs.getGlobalRateLimit(), { max: 5, duration: 1000 });
    await jobs.removeGlobalRateLimitAsync();
  },

  async 'events tell of pauses and failures, and progress is whole at the end'() {
    if (!modern) return;
    const jobs = queue('bun-told');
    const events = new QueueEvents('bun-told', { connection });
    open.push(events);
    const heard = [];
    for (const name of ['paused', 'resumed', 'failed']) {
      events.on(name, (event) => heard.push([name, event.failedReason]));
    }
    events.on('error', () => {});
    await events.waitUntilReady?.();
    // That it listens is shown by nothing but an event.
    await until('a pause to be heard', async () => {
      await jobs.pauseAsync();
      await jobs.resumeAsync();
      return heard.some(([name]) => name === 'resumed');
    });
    const busy = worker('bun-told', async (job) => {
      if (job.data.bad) throw new Error('bad');
      await job.updateProgress(40);
    }, { concurrency: 3 });
    await jobs.add('bad', { bad: true }, { attempts: 1 });
    const good = await jobs.add('good', {});
    await until('both ends', async () => {
      const { completed, failed } = await counts(jobs);
      return completed === 1 && failed === 1;
    });
    assert.equal((await jobs.getJob(good.id)).progress, 100);
    await until('the failure', async () => heard.some(([name, why]) => name === 'failed' && why === 'bad'));
    const [mine] = (await jobs.getWorkers()).filter(({ concurrency }) => concurrency === 3);
    assert.ok(mine, JSON.stringify(await jobs.getWorkers()));
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'the command line of the client reads what it shows'() {
    const tls = ca ? ['--tls-ca', ca] : [];
    const at = ['--host', '127.0.0.1', '--port', String(connection.port), ...tls];
    const run = (...words) => execFileSync(process.execPath, [program, ...words, ...at], { encoding: 'utf8' });
    const json = (...words) => JSON.parse(run(...words, '--json'));
    const name = 'bun-command-line';
    const { id } = json('push', name, '{"n":1}');
    json('push', name, '{"n":2}', '--priority', '7', '--delay', String(HOUR_MS));
    const { stats } = json('stats');
    for (const field of ['waiting', 'active', 'delayed', 'completed', 'failed', 'dlq', 'uptime']) {
      assert.equal(typeof stats[field], 'number', `${field}: ${JSON.stringify(stats)}`);
    }
    assert.match(run('stats'), /Waiting:/);
    // It takes queues for names, and says nothing that tells which version of the protocol that is.
    if (speaks3) assert.match(run('queue', 'list'), new RegExp(name));
    assert.equal(json('queue', 'count', name).count, 2);
    assert.equal(json('queue', 'jobs', name, '--state', 'delayed').jobs.length, 1);
    assert.equal(json('pull', name).job.id, id);
    run('job', 'progress', id, '40');
    run('job', 'log', id, 'working');
    assert.match(run('job', 'logs', id), /working/);
    run('ack', id, '--result', '{"ok":true}');
    assert.deepEqual(json('job', 'result', id).result, { ok: true });
    assert.equal(json('job', 'state', id).state, 'completed');
    run('queue', 'pause', name);
    assert.equal(json('queue', 'paused', name).paused, true);
    run('queue', 'resume', name);
    run('rate-limit', 'set', name, '5');
    run('rate-limit', 'clear', name);
    run('cron', 'add', name, '--queue', name, '--data', '{}', '--every', String(HOUR_MS));
    assert.match(run('cron', 'list'), new RegExp(name));
    run('cron', 'delete', name);
    assert.match(run('worker', 'list'), /\w/);
    assert.match(run('webhook', 'list'), /\w/);
    assert.match(run('metrics'), /corq_/);
    assert.match(run('ping'), /\w/);
    run('queue', 'obliterate', name);
  },
};
