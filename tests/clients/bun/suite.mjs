// The npm client of this protocol, unmodified, against the real server. Run by bun, from a directory that has
// the package:
//
//   suite.mjs PORT              everything but the restart
//   suite.mjs PORT restart      asks, by the line "kill", for the server to be killed and started again under
//                               running workers, and reads a line when that is done
//   suite.mjs PORT wrong        shows a wrong token to a guarded server, then the right one, which is "secret"
//
// With CORQ_TEST_CA, the file of an authority, all of it goes over TLS.
//
// What a release does not have is left out by asking for it, so one script tries them all.

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { createInterface } from 'node:readline';

import { promises as handling } from './handling.mjs';

const require = createRequire(`${process.cwd()}/`);
const { FlowProducer, Queue, Worker, QueueEvents, UnrecoverableError } =
  require('bunqueue/client');
const { version } = require('bunqueue/package.json');

const [port, mode] = [Number(process.argv[2]), process.argv[3]];
const ca = process.env.CORQ_TEST_CA;
const connection = { host: '127.0.0.1', port, ...(ca && { tls: { caFile: ca } }) };
const DEADLINE_MS = 30_000;
// Names of jobs stand beside their data from version 3 of the protocol on.
const modern = Number(version.split('.')[1]) >= 9;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(what, probe) {
  const end = Date.now() + DEADLINE_MS;
  while (Date.now() < end) {
    const found = await probe();
    if (found) return found;
    await sleep(10);
  }
  throw new Error(`waited ${DEADLINE_MS} ms in vain: ${what}`);
}

const open = [];

function queue(name, options = {}) {
  const made = new Queue(name, { connection, ...options });
  open.push(made);
  return made;
}

function worker(name, process, options = {}) {
  const made = new Worker(name, process, { connection, pollTimeout: 200, ...options });
  made.on('error', () => {});
  open.push(made);
  return made;
}

const counts = (jobs) => jobs.getJobCountsAsync();

const promises = {
  async 'jobs are added, worked on at once, and their results read'() {
    const jobs = queue('bun-invoices');
    const one = await jobs.add('single', { n: 0 });
    const many = await jobs.addBulk(
      Array.from({ length: 39 }, (_, n) => ({ name: 'bulk', data: { n: n + 1 } })),
    );
    const ids = [one, ...many].map((job) => job.id);
    assert.equal(new Set(ids).size, 40);
    const [names, seen] = [new Set(), []];
    const busy = worker(
      'bun-invoices',
      async (job) => {
        names.add(job.name);
        seen.push(job.data);
        await job.updateProgress(50, 'half');
        await job.log('working');
        return { n: job.data.n * 2 };
      },
      { concurrency: 5 },
    );
    await until('all jobs', async () => (await counts(jobs)).completed === 40);
    await busy.close();
    assert.deepEqual([...names].sort(), ['bulk', 'single']);
    // What the client puts beside the data is no part of them.
    assert.ok(seen.every((data) => typeof data.n === 'number'), JSON.stringify(seen));
    for (const [n, id] of ids.entries()) {
      const job = await jobs.getJob(id);
      assert.equal(await jobs.getJobState(id), 'completed');
      assert.equal(job.name, n === 0 ? 'single' : 'bulk');
      assert.equal(job.data.n, n);
      if (modern) assert.deepEqual(job.returnvalue, { n: n * 2 });
    }
    const { logs } = await jobs.getJobLogs(ids[0]);
    assert.equal(logs.length, 1);
    await jobs.clearJobLogs(ids[0]);
    assert.equal((await jobs.getJobLogs(ids[0])).logs.length, 0);
  },

  async 'data of any kind come back as they went'() {
    const jobs = queue('bun-kinds');
    const kinds = modern ? [7, 'text', [1, 2], null, { deep: [{ a: null }] }] : [{ deep: [{ a: null }] }];
    const seen = [];
    for (const data of kinds.filter((data) => data !== null)) await jobs.add('kind', data);
    const busy = worker('bun-kinds', async (job) => {
      seen.push(job.data);
    });
    const expected = kinds.filter((data) => data !== null);
    await until('all kinds', async () => seen.length === expected.length);
    assert.deepEqual(seen, expected);
    await busy.close();
  },

  async 'failing jobs are retried, buried and retried from there'() {
    const jobs = queue('bun-fragile');
    const options = { attempts: 3, backoff: { type: 'fixed', delay: 1 } };
    const hopeless = await jobs.add('hopeless', { n: 0 }, options);
    const second = await jobs.add('second', { n: 1 }, options);
    const fatal = await jobs.add('fatal', { n: 2 }, options);
    const runs = [0, 0, 0];
    const events = [];
    const busy = worker('bun-fragile', async (job) => {
      const { n } = job.data;
      runs[n] += 1;
      if (n === 2) throw new UnrecoverableError('never again');
      if (n === 0 || runs[n] === 1) throw new Error(`run ${runs[n]} failed`);
      return 'at last';
    });
    busy.on('failed', (job, error) => events.push([job.id, error.message]));
    const is = async (job, state) => (await jobs.getJobState(job.id)) === state;
    await until('the second', () => is(second, 'completed'));
    await until('the hopeless', () => is(hopeless, 'failed'));
    await until('the fatal', () => is(fatal, 'failed'));
    await busy.close();
    assert.deepEqual(runs, [3, 2, 1]);
    assert.ok(events.some(([id, text]) => id === fatal.id && text === 'never again'));
    const failed = await jobs.getFailedAsync();
    assert.equal(failed.length, 2);
    assert.equal(await jobs.retryDlqAsync(hopeless.id), 1);
    // It waits, or is with a pull of the closed worker that the server does not yet know to be gone.
    assert.ok(!(await is(hopeless, 'failed')));
    const healer = worker('bun-fragile', async () => 'healed');
    await until('the healed', () => is(hopeless, 'completed'));
    await healer.close();
    assert.equal(await jobs.purgeDlqAsync(), 1);
  },

  async 'delayed jobs come late, urgent ones early, and delays change'() {
    const jobs = queue('bun-ordered');
    const start = Date.now();
    await jobs.add('job', { n: 3 }, { delay: 400, priority: 100 });
    await jobs.add('job', { n: 2 });
    await jobs.add('job', { n: 1 }, { priority: 5 });
    const later = await jobs.add('job', { n: 4 }, { delay: 3_600_000 });
    assert.equal(await jobs.getDelayedCount(), 2);
    await jobs.changeJobDelay(later.id, 500);
    const order = [];
    const busy = worker('bun-ordered', async (job) => order.push([job.data.n, Date.now() - start]));
    await until('four jobs', async () => order.length === 4);
    await busy.close();
    assert.deepEqual(order.map(([n]) => n), [1, 2, 3, 4]);
    assert.ok(order[2][1] >= 399, `${order[2][1]}`);
  },

  async 'a queue is controlled and queried'() {
    const jobs = queue('bun-control');
    assert.equal((await jobs.add('one', { n: 1 }, { jobId: 'bun-order-7' })).id, 'bun-order-7');
    assert.equal((await jobs.add('one', { n: 2 }, { jobId: 'bun-order-7' })).id, 'bun-order-7');
    assert.equal(await jobs.countAsync(), 1);
    assert.equal(await jobs.getJob('nobody'), null);
    await jobs.pauseAsync?.() ?? jobs.pause();
    await until('the pause', () => jobs.isPausedAsync());
    await jobs.resumeAsync?.() ?? jobs.resume();
    await until('the end of it', async () => !(await jobs.isPausedAsync()));
    const later = await jobs.add('later', { n: 3 }, { delay: 3_600_000 });
    await jobs.promoteJob(later.id);
    assert.equal(await jobs.getJobState(later.id), 'waiting');
    await jobs.changeJobPriority(later.id, { priority: 9 });
    assert.equal((await jobs.getCountsPerPriorityAsync())['9'], 1);
    assert.deepEqual((await jobs.getJobsAsync({ state: 'prioritized' })).map((job) => job.id), [later.id]);
    await jobs.updateJobData(later.id, { n: 4 });
    const found = await jobs.getJob(later.id);
    assert.equal(found.data.n, 4);
    // Before, it stands in the data, which this replaced.
    if (modern) assert.equal(found.name, 'later');
    for (let n = 0; n < 5; n++) await jobs.add('put off', { n }, { delay: 3_600_000 });
    assert.equal((await jobs.getDelayedAsync(0, 10)).length, 5);
    if (modern) assert.equal(await jobs.promoteJobs({ count: 2 }), 2);
    else await jobs.promoteJobs();
    await jobs.removeAsync('bun-order-7');
    assert.ok((await jobs.drainAsync()) >= 2);
    await jobs.obliterateAsync();
    assert.equal(await jobs.countAsync(), 0);
  },

  async 'duplicates are told apart by their key'() {
    const jobs = queue('bun-keys');
    const add = (deduplication) => jobs.add('once', { n: 1 }, { deduplication, delay: 3_600_000 });
    const first = await add({ id: 'k' });
    assert.equal((await add({ id: 'k' })).id, first.id);
    const replaced = await add({ id: 'k', replace: true });
    assert.notEqual(replaced.id, first.id);
    assert.equal(await jobs.getJobState(first.id), 'unknown');
    if (jobs.getDeduplicationJobId && modern) {
      assert.equal(await jobs.getDeduplicationJobId('k'), replaced.id);
      assert.equal(await jobs.removeDeduplicationKey('k'), 1);
      assert.equal(await jobs.getDeduplicationJobId('k'), null);
    }
    await jobs.obliterateAsync();
  },

  async 'a job is waited for until it is finished'() {
    const jobs = queue('bun-finished');
    const busy = worker('bun-finished', async (job) => {
      await sleep(100);
      return { n: job.data.n + 1 };
    });
    const job = await jobs.add('soon', { n: 1 });
    assert.deepEqual(await job.waitUntilFinished(undefined, 20_000), { n: 2 });
    await busy.close();
  },

  async 'schedules bring jobs on their cadence'() {
    const jobs = queue('bun-clock');
    await jobs.upsertJobScheduler('bun-tick', { every: 50 }, { name: 'tick', data: { n: 1 } });
    const names = [];
    const busy = worker('bun-clock', async (job) => names.push(job.name));
    await until('three ticks', async () => names.length >= 3);
    assert.ok(names.every((name) => name === 'tick'), `${names}`);
    const found = await jobs.getJobScheduler('bun-tick');
    assert.equal(found.id, 'bun-tick');
    assert.ok((await jobs.getJobSchedulers()).some(({ id }) => id === 'bun-tick'));
    assert.equal(await jobs.removeJobScheduler('bun-tick'), true);
    assert.equal(await jobs.getJobScheduler('bun-tick'), null);
    await busy.close();
  },

  async 'the rate and the number of jobs at a time are limited'() {
    const jobs = queue('bun-limited');
    if (jobs.setGlobalConcurrencyAsync) {
      await jobs.setGlobalConcurrencyAsync(1);
      if (modern) assert.equal(await jobs.getGlobalConcurrency(), 1);
      await jobs.setGlobalRateLimitAsync(5, 2000);
      if (modern) assert.deepEqual(await jobs.getGlobalRateLimit(), { max: 5, duration: 2000 });
    } else {
      jobs.setGlobalConcurrency(1);
      jobs.setGlobalRateLimit(5, 2000);
      await sleep(300);
    }
    let [active, most, done] = [0, 0, 0];
    const start = Date.now();
    const busy = worker(
      'bun-limited',
      async () => {
        active += 1;
        most = Math.max(most, active);
        await sleep(5);
        [active, done] = [active - 1, done + 1];
      },
      { concurrency: 10 },
    );
    await jobs.addBulk(Array.from({ length: 8 }, (_, n) => ({ name: 'slow', data: { n } })));
    await until('all of them', async () => done === 8);
    assert.equal(most, 1);
    assert.ok(Date.now() - start >= 1000, `${Date.now() - start}`);
    await busy.close();
  },

  async 'events are heard'() {
    // Before, it hears those of an embedded queue only.
    if (!modern) return;
    const jobs = queue('bun-events');
    const events = new QueueEvents('bun-events', { connection });
    open.push(events);
    const heard = [];
    for (const name of ['waiting', 'active', 'completed', 'failed', 'progress']) {
      events.on(name, (event) => heard.push([name, event.jobId]));
    }
    events.on('error', () => {});
    if (events.waitUntilReady) await events.waitUntilReady();
    const busy = worker('bun-events', async (job) => {
      await job.updateProgress(50);
      if (job.data.bad) throw new Error('bad');
      return 'good';
    });
    await sleep(200);
    const good = await jobs.add('good', {});
    const bad = await jobs.add('bad', { bad: true }, { attempts: 1 });
    const has = (name, job) => heard.some(([seen, id]) => seen === name && id === job.id);
    await until('both ends', async () => has('completed', good) && has('failed', bad));
    assert.ok(has('active', good) && has('progress', bad), JSON.stringify(heard));
    await busy.close();
  },

  async 'the dead-letter queue is looked through and cleared one by one'() {
    const jobs = queue('bun-dead');
    if (!jobs.getDlqStatsAsync) return;
    const ids = [];
    for (let n = 0; n < 3; n++) ids.push((await jobs.add('dead', { n }, { attempts: 1 })).id);
    const busy = worker('bun-dead', async () => {
      throw new Error('no');
    });
    await until('three deaths', async () => (await counts(jobs)).failed === 3);
    await busy.close();
    assert.deepEqual((await jobs.getDlqJobsAsync()).map((job) => job.id), ids);
    assert.equal(await jobs.removeDlqJobAsync(ids[0]), true);
    assert.equal(await jobs.removeDlqJobAsync(ids[0]), false);
    assert.equal(await jobs.retryDlqAsync(), 2);
    await jobs.obliterateAsync();
  },

  async 'settings of a queue are merged and kept'() {
    const jobs = queue('bun-settings');
    const before = await jobs.getStallConfigAsync();
    assert.deepEqual(before, { enabled: true, stallInterval: 30000, maxStalls: 3, gracePeriod: 5000 });
    await jobs.setStallConfigAsync({ maxStalls: 5 });
    await jobs.setStallConfigAsync({ stallInterval: 60000, gracePeriod: undefined });
    assert.deepEqual(await jobs.getStallConfigAsync(), { ...before, maxStalls: 5, stallInterval: 60000 });
    await jobs.setDlqConfigAsync({ autoRetry: true, maxAge: 3_600_000, maxEntries: 7 });
    await jobs.setDlqConfigAsync({ maxAge: null, autoRetryInterval: 90_000 });
    assert.deepEqual(await jobs.getDlqConfigAsync(), {
      autoRetry: true,
      autoRetryInterval: 90_000,
      maxAutoRetries: 3,
      maxAge: null,
      maxEntries: 7,
    });
    await jobs.obliterateAsync();
    assert.deepEqual(await jobs.getStallConfigAsync(), before);
  },

  async 'dead letters come back by themselves and make room for newer ones'() {
    const jobs = queue('bun-letters');
    await jobs.setDlqConfigAsync({
      autoRetry: true,
      autoRetryInterval: 100,
      maxAutoRetries: 1,
      maxEntries: 2,
    });
    const runs = {};
    const busy = worker('bun-letters', async (job) => {
      runs[job.data.n] = (runs[job.data.n] ?? 0) + 1;
      throw new Error(`death ${job.data.n}`);
    });
    const ids = [];
    for (let n = 0; n < 3; n++) {
      ids.push((await jobs.add('dead', { n }, { attempts: 1 })).id);
      await until('two deaths', async () => runs[n] === 2);
    }
    await until('the last one is buried', async () => (await jobs.getJobState(ids[2])) === 'failed');
    await busy.close();
    assert.equal((await counts(jobs)).failed, 2);
    assert.equal(await jobs.getJobState(ids[0]), 'unknown');
    if (!jobs.getDlqAsync) return;
    const entries = await jobs.getDlqAsync();
    assert.deepEqual(entries.map(({ job }) => job.id), ids.slice(1));
    for (const entry of entries) {
      assert.equal(entry.job.name, 'dead');
      assert.equal(entry.reason, 'max_attempts_exceeded');
      assert.equal(entry.error, `death ${entry.job.data.n}`);
      assert.equal(entry.attempts.length, 1);
      assert.equal(entry.retryCount, 1);
      assert.equal(typeof entry.lastRetryAt, 'number');
      assert.deepEqual([entry.nextRetryAt, entry.expiresAt], [null, null]);
    }
    const one = await jobs.getDlqAsync({ offset: 1, limit: 1 });
    assert.deepEqual(one.map(({ job }) => job.id), [ids[2]]);
    assert.equal((await jobs.getDlqAsync({ reason: 'stalled' })).length, 0);
    const stats = await jobs.getDlqStatsAsync();
    assert.equal(stats.total, 2);
    assert.equal(stats.byReason.max_attempts_exceeded, 2);
    assert.deepEqual(stats.byQueue, { 'bun-letters': 2 });
    assert.ok(stats.oldestEntry <= stats.newestEntry);
    const filter = { reason: 'max_attempts_exceeded', olderThan: entries[0].enteredAt, limit: 1 };
    assert.equal(await jobs.retryDlqByFilterAsync(filter), 1);
    assert.equal(await jobs.getJobState(ids[1]), 'waiting');
    await jobs.obliterateAsync();
  },

  async 'schedules take their options'() {
    const jobs = queue('bun-options');
    const template = {
      name: 'tick',
      data: { n: 1 },
      opts: { attempts: 7, backoff: { type: 'fixed', delay: 5 }, removeOnFail: true, priority: 3 },
    };
    const at = { pattern: '0 0 1 1 *', immediately: true };
    await jobs.upsertJobScheduler('bun-at-once', at, template);
    const [first] = await until('the run at once', async () => {
      const waiting = await jobs.getJobsAsync({ state: 'prioritized' });
      return waiting.length > 0 && waiting;
    });
    assert.equal(first.name, 'tick');
    assert.equal(first.priority ?? first.opts?.priority ?? 3, 3);
    await jobs.removeJobScheduler('bun-at-once');
    await jobs.drainAsync();
    const every = { every: 20, preventOverlap: true, skipIfNoWorker: true };
    await jobs.upsertJobScheduler('bun-alone', every, { name: 'tock', data: {} });
    await sleep(200);
    assert.equal(await jobs.countAsync(), 0);
    let [active, most, done] = [0, 0, 0];
    const busy = worker(
      'bun-options',
      async () => {
        active += 1;
        most = Math.max(most, active);
        await sleep(60);
        active -= 1;
        done += 1;
      },
      { concurrency: 5 },
    );
    await until('three runs', async () => done >= 3);
    assert.equal(most, 1);
    await jobs.removeJobScheduler('bun-alone');
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'what a queue has done is counted by the minute'() {
    const jobs = queue('bun-measured');
    if (!jobs.getMetrics || !modern) return;
    const busy = worker('bun-measured', async () => {});
    await jobs.addBulk(Array.from({ length: 5 }, (_, n) => ({ name: 'one', data: { n } })));
    await until('all of them', async () => (await counts(jobs)).completed === 5);
    const metrics = await jobs.getMetrics('completed');
    assert.equal(metrics.data.reduce((sum, count) => sum + count, 0), 5);
    assert.equal(typeof (await jobs.trimEvents(10)), 'number');
    assert.ok((await jobs.getWorkers()).length >= 1);
    await busy.close();
  },

  async 'groups take turns, and what is set for them is read back and holds'() {
    const jobs = queue('bun-groups');
    if (!jobs.pauseGroup || !modern) return;
    const add = (n, id, more = {}) => jobs.add('one', { n }, { group: { id, ...more } });
    for (const [n, id] of [[1, 'a'], [2, 'a'], [3, 'a'], [4, 'b'], [5, 7]]) await add(n, id);
    await jobs.add('one', { n: 6 });
    await add(0, 'a', { priority: 0 });
    await add(9, 'a', { priority: 9, maxSize: 10 });
    await assert.rejects(add(10, 'a', { maxSize: 5 }), /Group a has reached its maximum size of 5/);
    await assert.rejects(add(10, 'a', { priority: 2_097_152 }), /priority/);
    assert.equal(await jobs.getGroupJobsCount('a'), 5);
    assert.equal(await jobs.getGroupsJobsCount(), 7);
    assert.equal((await jobs.getGroupJobs('a')).length, 5);
    assert.deepEqual(await jobs.getCountsPerPriorityForGroup('a'), { 0: 4, 9: 1 });

    assert.equal(await jobs.getGroupRateLimit('b'), null);
    assert.equal(await jobs.getGroupRateLimitTtl('b'), -2);
    await jobs.setGroupRateLimit('b', 3, 60_000);
    assert.deepEqual(await jobs.getGroupRateLimit('b'), { max: 3, duration: 60_000 });
    assert.equal(await jobs.removeGroupRateLimit('b'), 1);
    assert.equal(await jobs.removeGroupRateLimit('b'), 0);
    assert.equal(await jobs.getGroupConcurrency('b'), null);
    await jobs.setGroupConcurrency('b', 2);
    assert.equal(await jobs.getGroupConcurrency('b'), 2);
    assert.equal(await jobs.removeGroupConcurrency('b'), 1);
    assert.equal(await jobs.removeGroupConcurrency('b'), 0);
    assert.equal(await jobs.isGroupPaused(7), false);
    assert.equal(await jobs.pauseGroup(7), true);
    assert.equal(await jobs.pauseGroup(7), false);
    assert.equal(await jobs.isGroupPaused(7), true);

    const order = [];
    let active = 0;
    const busy = worker('bun-groups', async (job) => {
      order.push(job.data.n);
      if (job.data.n === 1) active = await jobs.getGroupActiveCount('a');
    });
    await until('all but the paused one', async () => order.length === 7);
    assert.equal(active, 1);
    await sleep(300);
    // Without a group first, then a job of each in turn; those of priority 0 in the order they came.
    assert.deepEqual(order, [6, 1, 4, 2, 3, 0, 9]);
    assert.equal(await jobs.resumeGroup(7), true);
    assert.equal(await jobs.resumeGroup(7), false);
    await until('the paused one', async () => order.length === 8);
    assert.equal(await jobs.getGroupsJobsCount(), 0);
    await busy.close();
  },

  async 'a worker keeps to the concurrency and the rate of its groups'() {
    const jobs = queue('bun-polite');
    if (!jobs.pauseGroup || !modern) return;
    await jobs.setGroupConcurrency('c', 1);
    const entries = Array.from({ length: 24 }, (_, n) => ({
      name: 'one',
      data: { n },
      opts: { group: { id: 'abc'[n % 3] } },
    }));
    await jobs.addBulk(entries);
    const [running, most, starts] = [{}, {}, []];
    const busy = worker(
      'bun-polite',
      async (job) => {
        const { id } = job.opts.group;
        running[id] = (running[id] ?? 0) + 1;
        most[id] = Math.max(most[id] ?? 0, running[id]);
        starts.push([id, Date.now()]);
        await sleep(20);
        running[id] -= 1;
      },
      { concurrency: 10, batchSize: 10, group: { concurrency: 2, limit: { max: 4, duration: 500 } } },
    );
    await until('all of them', async () => (await counts(jobs)).completed === 24);
    await busy.close();
    assert.ok(most.a <= 2 && most.b <= 2 && most.c === 1, JSON.stringify(most));
    for (const id of 'abc') {
      const times = starts.filter(([of]) => of === id).map(([, at]) => at);
      // The fifth is of another span than the first, give or take the way to the client.
      assert.ok(times[4] - times[0] > 350, JSON.stringify(times));
    }
  },

  async 'a worker takes batches of one group and holds a group for a while'() {
    const jobs = queue('bun-batches');
    if (!jobs.pauseGroup || !modern) return;
    const entries = Array.from({ length: 20 }, (_, n) => ({
      name: 'one',
      data: { n },
      opts: { group: { id: `g${n % 2}` } },
    }));
    await jobs.addBulk(entries);
    const batches = [];
    const busy = worker(
      'bun-batches',
      async (job) => {
        const batch = job.getBatch?.() ?? [job];
        batches.push(batch.map((one) => one.opts.group.id));
      },
      { batch: { size: 5, minSize: 2, timeout: 500, groupAffinity: true } },
    );
    await until('all of them', async () => (await counts(jobs)).completed === 20);
    await busy.close();
    assert.ok(batches.every((batch) => new Set(batch).size === 1), JSON.stringify(batches));
    assert.ok(batches.some((batch) => batch.length > 1), JSON.stringify(batches));

    const seen = [];
    await jobs.add('held', { n: 1 }, { group: { id: 'slow' } });
    let held = false;
    const careful = worker('bun-batches', async (job) => {
      seen.push(Date.now());
      if (held) return;
      held = true;
      await careful.rateLimitGroup(job, 400);
    });
    await until('the second time', async () => seen.length === 2);
    assert.ok(seen[1] - seen[0] >= 390, String(seen[1] - seen[0]));
    await careful.close();
  },
};

const flowing = {
  async 'a flow runs from its leaves to its root, which has their values'() {
    const flows = new FlowProducer({ connection });
    open.push(flows);
    await flows.waitUntilReady?.();
    const leaf = (n) => ({ name: 'leaf', queueName: `bun-leaf-${n % 3}`, data: { n } });
    const tree = {
      name: 'whole',
      queueName: 'bun-whole',
      data: { of: 'all' },
      children: [leaf(0), leaf(1), { ...leaf(2), name: 'branch', children: [leaf(3), leaf(4)] }],
    };
    const node = await flows.add(tree, {
      queuesOptions: { 'bun-leaf-1': { removeOnComplete: true } },
    });
    assert.equal(await node.job.getState(), 'waiting-children');
    assert.equal(node.children.length, 3);
    assert.equal(await node.children[2].job.getState(), 'waiting-children');
    const found = await flows.getFlow({ id: node.job.id, queueName: 'bun-whole' });
    assert.equal(found.children.length, 3);
    assert.deepEqual(found.job.data, { of: 'all' });
    const names = found.children.map((child) => child.job.name).sort();
    assert.deepEqual(names, ['branch', 'leaf', 'leaf']);
    assert.equal(found.children.flatMap((child) => child.children ?? []).length, 2);
    const dependencies = await node.job.getDependenciesCount();
    assert.equal(dependencies.unprocessed, 3);
    const parents = new Set();
    for (let n = 0; n < 3; n++) {
      worker(`bun-leaf-${n}`, async (job) => {
        parents.add(job.parent?.id);
        return { n: job.data.n };
      });
    }
    const values = [];
    worker('bun-whole', async (job) => {
      values.push(await job.getChildrenValues());
      return 'whole';
    });
    await until('the root', async () => (await node.job.getState()) === 'completed');
    const numbers = Object.values(values[0]).map((value) => value.n).sort();
    assert.deepEqual(numbers, [0, 1, 2]);
    assert.ok(Object.keys(values[0]).every((key) => /^bun-leaf-[012]:/.test(key)));
    assert.ok(parents.has(node.job.id));
    assert.deepEqual(await node.job.getChildrenValues(), values[0]);
  },

  async 'chains, fan-ins and trees run in their order'() {
    const flows = new FlowProducer({ connection });
    open.push(flows);
    const step = (name, n) => ({ name, queueName: `bun-steps-${n % 2}`, data: { n } });
    const done = [];
    const chain = await flows.addChain([step('a', 0), step('b', 1), step('c', 2)]);
    assert.equal(chain.jobIds.length, 3);
    const fan = await flows.addBulkThen([step('p', 3), step('q', 4)], step('last', 5));
    const tree = await flows.addTree({
      ...step('root', 6),
      children: [step('left', 7), { ...step('right', 8), children: [step('end', 9)] }],
    });
    assert.equal(tree.jobIds.length, 4);
    for (let n = 0; n < 2; n++) {
      worker(`bun-steps-${n}`, async (job) => {
        done.push(job.data.n);
        return job.data.n;
      });
    }
    await until('all of them', async () => done.length === 10);
    const before = (first, second) => assert.ok(done.indexOf(first) < done.indexOf(second), done);
    for (const [first, second] of [[0, 1], [1, 2], [3, 5], [4, 5], [6, 7], [6, 8], [8, 9]]) {
      before(first, second);
    }
    // Older releases have this for an embedded queue only.
    if (!modern) return;
    assert.equal(await flows.getParentResult(chain.jobIds[0]), 0);
    const results = await flows.getParentResults(fan.parallelIds);
    assert.deepEqual([...results.values()], [3, 4]);
  },

  async 'what a failed child means for its parent is as its options say'() {
    const flows = new FlowProducer({ connection });
    open.push(flows);
    worker('bun-breaks', async (job) => {
      if (job.data.breaks) throw new UnrecoverableError('broken');
      return job.data.n;
    });
    const add = (name, opts) => flows.add({
      name,
      queueName: 'bun-parents',
      data: {},
      children: [
        { name: 'breaks', queueName: 'bun-breaks', data: { breaks: true }, opts },
        { name: 'works', queueName: 'bun-breaks', data: { n: 1 } },
      ],
    });
    const state = (node, expected) =>
      until(expected, async () => (await node.job.getState()) === expected);
    const fails = await add('fails', { failParentOnFailure: true });
    await state(fails, 'failed');
    const goesOn = await add('goes-on', { continueParentOnFailure: true });
    await state(goesOn, 'waiting');
    const ignores = await add('ignores', { ignoreDependencyOnFailure: true });
    await state(ignores, 'waiting');
    const removes = await add('removes', { removeDependencyOnFailure: true });
    await state(removes, 'waiting');
    const key = (node) => `bun-breaks:${node.children[0].job.id}`;
    if (modern) {
      const failed = await goesOn.job.getFailedChildrenValues();
      assert.deepEqual(failed, { [key(goesOn)]: 'broken' });
      const ignored = await ignores.job.getIgnoredChildrenFailures();
      assert.deepEqual(ignored, { [key(ignores)]: 'broken' });
      assert.deepEqual(await removes.job.getIgnoredChildrenFailures(), {});
    }
    const waits = await add('waits', {});
    await until('the other child', async () =>
      (await waits.children[1].job.getState()) === 'completed');
    assert.equal(await waits.job.getState(), 'waiting-children');
  },

  async 'flows are added many at a time, and children let go of'() {
    const flows = new FlowProducer({ connection });
    open.push(flows);
    const tree = (n) => ({
      name: `tree-${n}`,
      queueName: 'bun-many',
      data: { n },
      children: [0, 1].map((child) => ({ name: 'c', queueName: 'bun-many-c', data: { child } })),
    });
    const nodes = await flows.addBulk([tree(0), tree(1), tree(2)]);
    assert.equal(nodes.length, 3);
    for (const node of nodes) assert.equal(await node.job.getState(), 'waiting-children');
    if (modern) {
      assert.equal(await nodes[0].children[0].job.removeChildDependency(), true);
      await nodes[0].job.removeUnprocessedChildren();
      await until('the first', async () => (await nodes[0].job.getState()) === 'waiting');
      assert.equal(await nodes[0].children[0].job.getState(), 'waiting');
      const taken = { ...tree(3), opts: { jobId: 'bun-taken' } };
      await flows.add(taken);
      const again = flows.add({ ...tree(4), opts: { jobId: 'bun-taken' } });
      await assert.rejects(again, /already exists/);
      assert.equal(await queue('bun-many').getWaitingChildrenCount(), 3);
    }
  },
};
// The producer of flows at 2.8 takes no TLS.
if (modern || !ca) Object.assign(promises, flowing);

Object.assign(promises, handling({ queue, worker, until, counts, modern }));

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
  for (let n = 0; n < 2; n++) worker('bun-restart', work, { concurrency: 3, lockDuration: 1500 });
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
  const only = process.argv[3];
  for (const [name, promise] of Object.entries(promises)) {
    if (only && !name.includes(only)) continue;
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
