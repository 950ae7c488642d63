// Flows: parents and children over queues.

import assert from 'node:assert/strict';

import {
  connection,
  FlowProducer,
  UnrecoverableError,
  modern,
  open,
  queue,
  until,
  worker,
} from './tools.mjs';

export const promises = {
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
