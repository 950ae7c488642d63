// What a program does with single jobs by hand, beside its workers: takes one, holds it longer, ends it, puts
// it back or off, does done ones again, cleans up.

import assert from 'node:assert/strict';

const HOUR_MS = 3_600_000;

export const promises = ({ queue, worker, until, counts, modern }) => ({
  async 'jobs are taken, held and ended by hand'() {
    const jobs = queue('bun-by-hand');
    const ids = [];
    for (let n = 0; n < 4; n++) ids.push((await jobs.add('hand', { n }, { attempts: 1 })).id);
    const hand = worker('bun-by-hand', async () => {}, { autorun: false, lockDuration: 20_000 });
    const taken = [];
    for (let n = 0; n < 4; n++) taken.push(await hand.getNextJob());
    assert.deepEqual(taken.map((job) => job.id), ids);
    assert.equal(await hand.getNextJob(), undefined);
    if (!taken[0].token) return;
    assert.equal(await jobs.extendJobLock(ids[0], taken[0].token, 60_000), 60_000);
    const tokens = taken.map((job) => job.token);
    assert.equal(await hand.extendJobLocks(ids, tokens, 60_000), 4);
    // The second is held by another token.
    assert.equal(await hand.extendJobLocks(ids.slice(0, 2), [tokens[0], tokens[0]], 60_000), 1);
    await jobs.moveJobToCompleted(ids[0], { by: 'hand' }, tokens[0]);
    await jobs.moveJobToFailed(ids[1], new Error('by hand'), tokens[1]);
    await jobs.moveJobToWait(ids[2], tokens[2]);
    await jobs.moveJobToDelayed(ids[3], Date.now() + HOUR_MS, tokens[3]);
    const states = [];
    for (const id of ids) states.push(await jobs.getJobState(id));
    assert.deepEqual(states, ['completed', 'failed', 'waiting', 'delayed']);
    await assert.rejects(jobs.moveJobToCompleted(ids[0], {}, tokens[0]));
    await hand.close();
  },

  async 'jobs that wait are put off, and put off no more'() {
    const jobs = queue('bun-put-off');
    const one = await jobs.add('one', {});
    await jobs.changeJobDelay(one.id, HOUR_MS);
    assert.equal(await jobs.getJobState(one.id), 'delayed');
    await jobs.moveJobToWait(one.id);
    assert.equal(await jobs.getJobState(one.id), 'waiting');
    await jobs.obliterateAsync();
  },

  async 'what is done is done again, and cleaned up'() {
    const jobs = queue('bun-again');
    const ids = [];
    for (let n = 0; n < 5; n++) ids.push((await jobs.add('again', { n }, { attempts: 1 })).id);
    const runs = {};
    const busy = worker('bun-again', async (job) => {
      runs[job.data.n] = (runs[job.data.n] ?? 0) + 1;
      if (job.data.n === 4) throw new Error('never');
      return job.data.n;
    });
    const all = (done) => async () => {
      const { completed, failed } = await counts(jobs);
      return completed === 4 && failed === 1 && done();
    };
    await until('all ends', all(() => true));
    assert.equal(await jobs.retryCompletedAsync(ids[0]), 1);
    await until('one more', all(() => runs[0] === 2));
    assert.equal(await jobs.retryCompletedAsync(), 4);
    await until('four more', all(() => runs[3] === 2));
    await jobs.retryJob(ids[4]);
    await until('the failed one again', all(() => runs[4] === 2));
    await busy.close();
    const cleaned = await jobs.cleanAsync(0, 2, 'completed');
    assert.equal(cleaned.length, 2);
    assert.equal((await counts(jobs)).completed, 2);
    assert.deepEqual(await jobs.cleanAsync(0, 10, 'failed'), [ids[4]]);
    await jobs.obliterateAsync();
  },

  async 'limits are taken away again'() {
    const jobs = queue('bun-unlimited');
    if (!jobs.removeGlobalConcurrencyAsync) return;
    await jobs.setGlobalConcurrencyAsync(1);
    await jobs.setGlobalRateLimitAsync(1, HOUR_MS);
    await jobs.addBulk(Array.from({ length: 6 }, (_, n) => ({ name: 'one', data: { n } })));
    let done = 0;
    const busy = worker('bun-unlimited', async () => (done += 1), { concurrency: 3 });
    await until('the first', async () => done === 1);
    if (modern) assert.ok((await jobs.getRateLimitTtl(1)) > 0);
    await jobs.removeGlobalRateLimitAsync();
    await jobs.removeGlobalConcurrencyAsync();
    await until('all of them', async () => done === 6);
    if (modern) {
      assert.equal(await jobs.getGlobalConcurrency(), null);
      assert.equal(await jobs.getGlobalRateLimit(), null);
      assert.equal(await jobs.isMaxed(), false);
    }
    await busy.close();
    await jobs.obliterateAsync();
  },

  async 'a worker says what it thinks of its job'() {
    const jobs = queue('bun-inside');
    const seen = [];
    const busy = worker('bun-inside', async (job) => {
      if (job.data.first === undefined) {
        await job.updateData({ first: true });
        await job.changePriority({ priority: 0 });
        job.discard();
        throw new Error('not again');
      }
      seen.push(job.data);
      return 'done';
    });
    const told = await jobs.add('told', {}, { attempts: 5, backoff: 1 });
    await until('its end', async () => (await jobs.getJobState(told.id)) === 'failed');
    assert.equal((await jobs.getJob(told.id)).data.first, true);
    assert.equal(await jobs.retryDlqAsync(told.id), 1);
    await until('its second life', async () => (await jobs.getJobState(told.id)) === 'completed');
    assert.equal(seen.length, 1);
    await busy.close();
  },
});
