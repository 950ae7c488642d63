// Fills a Redis with jobs of BullMQ in every state: node bullmq.mjs PORT. Its directory has node_modules.
import { createRequire } from 'node:module';
const { FlowProducer, Queue, Worker } = createRequire(`${process.cwd()}/`)('bullmq');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const emails = new Queue('emails', { connection });
await emails.add('welcome', { to: 'ada' }, { attempts: 5, backoff: { type: 'exponential', delay: 1500 }, jobId: 'first' });
await emails.add('urgent', { n: 2 }, { priority: 7, removeOnComplete: true });
await emails.add('later', { n: 3 }, { delay: 3_600_000 });
await emails.upsertJobScheduler('nightly', { pattern: '0 15 3 * * *', tz: 'Europe/Rome' }, { name: 'report', data: { all: true } });

const fails = new Queue('fails', { connection });
await fails.add('dies', { n: 5 }, { attempts: 1, jobId: 'dead' });
await fails.add('again', { n: 6 }, { attempts: 3, backoff: { type: 'fixed', delay: 3_600_000 }, jobId: 'retried' });
const worker = new Worker('fails', async job => { throw new Error(`no ink in ${job.name}`); }, { connection });
let left = 2;
await new Promise(done => worker.on('failed', () => { if (--left === 0) done(); }));
await worker.close();

const flows = new FlowProducer({ connection });
const child = { name: 'child', queueName: 'kids', data: 1, opts: { jobId: 'kid' } };
await flows.add({ name: 'parent', queueName: 'parents', data: 2, opts: { jobId: 'parent' }, children: [child] });
await Promise.all([emails, fails, flows].map(one => one.close()));
