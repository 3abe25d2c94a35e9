// The scenario of clients_test.go with the official Node client.
//
// Prints one JSON object: what each step gave, or how it failed. What they should
// have given is the test's to say. Every call names its step in X-Step, by which the
// front that stands before the API counts it, and spoils some.
'use strict';

const { createHash } = require('node:crypto');
const { createReadStream, readFileSync } = require('node:fs');
const { join } = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const OpenAI = require('openai');
const { VERSION } = require('openai/version');

const inputs = process.argv[2];
const read = (name) => readFileSync(join(inputs, name));
const data = read('input.jsonl');
const options = { apiKey: process.env.HOLDFAST_API_KEY, timeout: 60_000 };
const client = new OpenAI({ baseURL: `${process.env.HOLDFAST_FRONT}/v1`, ...options });
const direct = new OpenAI({ baseURL: `${process.env.HOLDFAST_URL}/v1`, ...options });
const stranger = client.withOptions({ apiKey: 'hf_wrong' });

const results = {}, failures = {}, requestIDs = {};

// step notes what call gives, or the client's error; returns the former, or undefined.
async function step(name, call) {
  try {
    const value = await call({ headers: { 'X-Step': name } });
    results[name] = value;
    requestIDs[name] = value._request_id ?? '';
    return value;
  } catch (e) {
    if (!(e instanceof OpenAI.APIError) || e.status === undefined) throw e;
    const { status, code, param, type, message } = e;
    failures[name] = { class: e.constructor.name, status, code, param, type, message, request_id: e.requestID };
  }
}

const upload = (name, file, params) =>
  step(name, (o) => client.files.create({ file, purpose: 'batch', ...params }, o));

const buffer = (bytes, name) => OpenAI.toFile(bytes, name);

const create = (name, file, params, headers) =>
  step(name, (o) =>
    client.batches.create(
      { input_file_id: file, endpoint: '/v1/chat/completions', completion_window: '24h', ...params },
      { headers: { ...o.headers, ...headers } },
    ));

// wait polls until the batch has one of the statuses and notes it as the step's result.
async function wait(name, batch, until = ['completed', 'failed', 'expired', 'cancelled']) {
  for (const end = Date.now() + 60_000; ; await sleep(200)) {
    const found = await client.batches.retrieve(batch.id, { headers: { 'X-Step': 'poll' } });
    if (until.includes(found.status) || Date.now() > end) return (results[name] = found);
  }
}

const content = (name, file, of = client) => step(name, async (o) => (await of.files.content(file, o)).text());

async function ids(pages) {
  const found = [];
  for await (const entry of pages) found.push(entry.id);
  return found;
}

async function main() {
  // Files in, by stream and by buffer.
  const streamed = await upload('upload stream', createReadStream(join(inputs, 'input.jsonl')), {
    expires_after: { anchor: 'created_at', seconds: 3600 },
  });
  const buffered = await upload('upload buffer', await buffer(data, 'buffer é.jsonl'));
  const failing = await upload('upload failing', await buffer(read('failing.jsonl'), 'failing.jsonl'));
  const slow = await upload('upload slow', await buffer(read('slow.jsonl'), 'slow.jsonl'));
  await upload('upload wrong purpose', await buffer(data, 'x.jsonl'), { purpose: 'assistants' });
  await upload('upload wrong expiry', await buffer(data, 'x.jsonl'), { expires_after: { anchor: 'created_at', seconds: 60 } });
  await step('file', (o) => client.files.retrieve(streamed.id, o));
  await step('file missing', (o) => client.files.retrieve('file-none', o));
  await content('content missing', 'file-none');
  await content('content', streamed.id);
  await content('content watched', streamed.id);
  await content('content direct', streamed.id, direct);

  // Uploads: parts side by side and out of order; then every refusal.
  const third = Math.floor(data.length / 3), twoThirds = Math.floor((2 * data.length) / 3);
  const thirds = [data.subarray(0, third), data.subarray(third, twoThirds), data.subarray(twoThirds)];
  const about = { filename: 'parts.jsonl', purpose: 'batch', bytes: data.length, mime_type: 'application/jsonl' };
  const part = (name, of, chunk) =>
    step(name, async (o) => client.uploads.parts.create(of, { data: await buffer(chunk, 'part') }, o));
  const complete = (name, of, parts, md5) =>
    step(name, (o) => client.uploads.complete(of, { part_ids: parts, ...(md5 && { md5 }) }, o));

  const whole = await step('parts create', (o) => client.uploads.create(about, o));
  const sent = await Promise.all([2, 0, 1].map(async (n) => [n, await part(`part ${n}`, whole.id, thirds[n])]));
  const order = sent.sort().map(([, p]) => p.id);
  const md5 = createHash('md5').update(data).digest('hex');
  const joined = await complete('complete', whole.id, order, md5);
  await complete('complete again', whole.id, order, md5);
  await complete('complete otherwise', whole.id, order.toReversed());
  await part('part after complete', whole.id, 'more');
  await content('content of parts', joined.file.id);

  const spoilt = await step('spoilt create', (o) => client.uploads.create(about, o));
  const one = await part('spoilt part', spoilt.id, data);
  await complete('complete wrong md5', spoilt.id, [one.id], '0'.repeat(32));
  await complete('complete unknown part', spoilt.id, ['part_none']);
  const half = await part('spoilt second part', spoilt.id, 'too much');
  await complete('complete wrong bytes', spoilt.id, [one.id, half.id]);
  await step('cancel upload', (o) => client.uploads.cancel(spoilt.id, o));
  await step('cancel upload again', (o) => client.uploads.cancel(spoilt.id, o));
  await part('part after cancel', spoilt.id, 'more');
  await complete('complete after cancel', spoilt.id, [one.id]);
  await part('part of nothing', 'upload_none', 'more');

  // Batches in; two of them through a front that fails.
  const expiry = { output_expires_after: { anchor: 'created_at', seconds: 3600 } };
  const mainBatch = await create('create', buffered.id, { metadata: { name: 'é' }, ...expiry });
  const failed = await create('create failing', failing.id);
  const hung = await create('create slow', slow.id);
  const lost = await create('create lost', buffered.id, { metadata: { name: 'lost' } });
  await create('create refused', buffered.id, { metadata: { name: 'refused' } });
  const keyed = await create('create keyed', joined.file.id, {}, { 'Idempotency-Key': 'one' });
  await create('create keyed again', joined.file.id, {}, { 'Idempotency-Key': 'one' });
  await create('create keyed otherwise', buffered.id, {}, { 'Idempotency-Key': 'one' });
  await create('create without window', buffered.id, { completion_window: undefined });
  await create('create wrong endpoint', buffered.id, { endpoint: '/v1/nothing' });
  await create('create wrong window', buffered.id, { completion_window: '25h' });
  await create('create wrong metadata', buffered.id, { metadata: { ['k'.repeat(65)]: 'v' } });
  await create('create missing file', 'file-none');

  // Lists: six batches are three full pages of two.
  await step('list', (o) => ids(client.batches.list({ limit: 2 }, o)));
  await step('list unknown cursor', (o) => ids(client.batches.list({ after: 'batch_none' }, o)));
  await create('create twin', buffered.id, { metadata: { name: 'é' }, ...expiry });

  // Cancel: while it runs, again, and when it is over.
  await wait('slow started', hung, ['in_progress']);
  await step('delete in use', (o) => client.files.delete(slow.id, o));
  await step('cancel', (o) => client.batches.cancel(hung.id, o));
  await step('cancel again', (o) => client.batches.cancel(hung.id, o));
  const done = await wait('completed', mainBatch);
  await step('cancel over', (o) => client.batches.cancel(mainBatch.id, o));
  await step('cancel missing', (o) => client.batches.cancel('batch_none', o));
  await step('batch missing', (o) => client.batches.retrieve('batch_none', o));
  await content('output', done.output_file_id);
  await content('errors', done.error_file_id);
  await content('all errors', (await wait('all failed', failed)).error_file_id);
  await wait('lost over', lost);
  await wait('keyed over', keyed);
  await content('cancelled errors', (await wait('cancelled', hung)).error_file_id);

  // Files out.
  const inFiles = { purpose: 'batch', order: 'asc' };
  await step('files', (o) => ids(client.files.list({ purpose: 'batch' }, o)));
  await step('files ascending', (o) => ids(client.files.list({ ...inFiles, limit: 2 }, o)));
  await step('files after', (o) => ids(client.files.list({ ...inFiles, after: buffered.id }, o)));
  await step('files of results', (o) => ids(client.files.list({ purpose: 'batch_output' }, o)));
  await step('files unknown cursor', (o) => ids(client.files.list({ after: 'file-none' }, o)));
  await step('delete', (o) => client.files.delete(streamed.id, o));
  await step('delete again', (o) => client.files.delete(streamed.id, o));
  await step('file deleted', (o) => client.files.retrieve(streamed.id, o));

  // Models; no entry; a server that is down.
  await step('models', (o) => ids(client.models.list(o)));
  await step('model', (o) => client.models.retrieve('sim', o));
  await step('model missing', (o) => client.models.retrieve('none', o));
  await step('wrong key', (o) => ids(stranger.batches.list({}, o)));
  await step('down', (o) => ids(client.models.list(o)));
}

function report() {
  process.stdout.write(JSON.stringify({ client: `openai-node ${VERSION}`, results, failures, request_ids: requestIDs }));
}

main().finally(report); // also after a step that the next one needs has failed
