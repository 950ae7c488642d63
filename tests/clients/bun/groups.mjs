// Groups of jobs: turns, limits, pauses and holds.

import assert from 'node:assert/strict';

import { counts, modern, queue, sleep, until, worker } from './tools.mjs';

export const promises = {
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
      { concurrency: 10, batchSize: 10, group: { concurrency: 2, limit: { max: 4, duration: 4000 } } },
    );
    await until('all of them', async () => (await counts(jobs)).completed === 24);
    await busy.close();
    assert.ok(most.a <= 2 && most.b <= 2 && most.c === 1, JSON.stringify(most));
    for (const id of 'abc') {
      const times = starts.filter(([of]) => of === id).map(([, at]) => at);
      // The fifth is of another span than the first, give or take the way to the client.
      assert.ok(times[4] - times[0] > 1000, JSON.stringify(times));
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
