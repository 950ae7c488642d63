// Jobs from their push to their end: order, retries, delays, keys, results.

import assert from 'node:assert/strict';

import { counts, UnrecoverableError, modern, queue, sleep, until, worker } from './tools.mjs';

export const promises = {
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
    await jobs.add('job', { n: 3 }, { delay: 5000, priority: 100 });
    await jobs.add('job', { n: 2 });
    await jobs.add('job', { n: 1 }, { priority: 5 });
    const later = await jobs.add('job', { n: 4 }, { delay: 3_600_000 });
    assert.equal(await jobs.getDelayedCount(), 2);
    await jobs.changeJobDelay(later.id, 8000);
    const order = [];
    const busy = worker('bun-ordered', async (job) => order.push([job.data.n, Date.now() - start]));
    await until('four jobs', async () => order.length === 4);
    await busy.close();
    assert.deepEqual(order.map(([n]) => n), [1, 2, 3, 4]);
    assert.ok(order[2][1] >= 4999, `${order[2][1]}`);
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
    assert.deepEqual(await job.waitUntilFinished(undefined, 60_000), { n: 2 });
    await busy.close();
  },
};
