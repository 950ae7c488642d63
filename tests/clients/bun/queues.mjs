// A queue as a whole: its control, limits, schedules, events, dead letters, settings and figures.

import assert from 'node:assert/strict';

import {
  connection,
  counts,
  QueueEvents,
  modern,
  open,
  queue,
  sleep,
  until,
  worker,
} from './tools.mjs';

export const promises = {
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
      // Nothing tells when they are set.
      await sleep(5000);
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
    // What listens is told by nothing but an event.
    await until('an event', async () => {
      await jobs.add('probe', {});
      await sleep(100);
      return heard.length > 0;
    });
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
    // A pull of the worker that has ended may still get it, and gives it back with its connection.
    await until('it waits again', async () => (await jobs.getJobState(ids[1])) === 'waiting');
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
};
