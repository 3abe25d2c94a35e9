"""The scenario of clients_test.go with the official Python client.

Prints one JSON object: what each step gave, or how it failed. What they should
have given is the test's to say. Every call names its step in X-Step, by which the
front that stands before the API counts it, and spoils some.
"""

import atexit
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import openai
from openai import OpenAI

inputs = Path(sys.argv[1])
data = (inputs / "input.jsonl").read_bytes()
options = {"api_key": os.environ["HOLDFAST_API_KEY"], "timeout": 60}
client = OpenAI(base_url=os.environ["HOLDFAST_FRONT"] + "/v1", **options)
direct = OpenAI(base_url=os.environ["HOLDFAST_URL"] + "/v1", **options)
stranger = client.with_options(api_key="hf_wrong")

results, failures, request_ids, invalid = {}, {}, {}, {}


@atexit.register  # also after a step that the next one needs has failed
def report():
    observed = {"results": results, "failures": failures, "request_ids": request_ids, "invalid": invalid}
    json.dump(observed | {"client": f"openai-python {openai.__version__}"}, sys.stdout)


def plain(value):
    """The JSON of a result: an object of the client's, or text, or a list of them."""
    return value.to_dict(mode="json") if hasattr(value, "to_dict") else value


def step(name, call):
    """Notes what call gives, or the client's error; returns the former, or None."""
    try:
        value = call({"X-Step": name})
    except openai.APIStatusError as e:
        failures[name] = {
            "class": type(e).__name__,
            "status": e.status_code,
            "code": e.code,
            "param": e.param,
            "type": e.type,
            "message": e.message,
            "request_id": e.request_id,
        }
        return None
    results[name] = plain(value)
    request_ids[name] = getattr(value, "_request_id", None) or ""
    if hasattr(value, "model_validate"):
        # The client itself takes whatever comes; its schema, asked strictly, does not.
        try:
            type(value).model_validate(plain(value), strict=True)
        except ValueError as e:
            invalid[name] = str(e)
    return value


def upload(name, file, **params):
    params.setdefault("purpose", "batch")
    return step(name, lambda h: client.files.create(file=file, extra_headers=h, **params))


def create(name, file, more=None, **params):
    params = {"endpoint": "/v1/chat/completions", "completion_window": "24h"} | params
    return step(name, lambda h: client.batches.create(input_file_id=file, extra_headers=h | (more or {}), **params))


def wait(name, batch, until=("completed", "failed", "expired", "cancelled")):
    """Polls until the batch has one of the statuses and notes it as the step's result."""
    end = time.monotonic() + 60
    while True:
        found = client.batches.retrieve(batch.id, extra_headers={"X-Step": "poll"})
        if found.status in until or time.monotonic() > end:
            results[name] = plain(found)
            return found
        time.sleep(0.2)


def content(name, file, of=client):
    step(name, lambda h: of.files.content(file, extra_headers=h).read().decode())


def ids(page):
    return [entry.id for entry in page]


# Files in, by stream and by buffer.
with open(inputs / "input.jsonl", "rb") as stream:
    streamed = upload("upload stream", stream, expires_after={"anchor": "created_at", "seconds": 3600})
buffered = upload("upload buffer", ("buffer é.jsonl", data))
failing = upload("upload failing", ("failing.jsonl", (inputs / "failing.jsonl").read_bytes()))
slow = upload("upload slow", ("slow.jsonl", (inputs / "slow.jsonl").read_bytes()))
upload("upload wrong purpose", ("x.jsonl", data), purpose="assistants")
upload("upload wrong expiry", ("x.jsonl", data), expires_after={"anchor": "created_at", "seconds": 60})
step("file", lambda h: client.files.retrieve(streamed.id, extra_headers=h))
step("file missing", lambda h: client.files.retrieve("file-none", extra_headers=h))
content("content missing", "file-none")
content("content", streamed.id)
content("content watched", streamed.id)
content("content direct", streamed.id, direct)

# Uploads: parts side by side and out of order; then every refusal.
thirds = [data[: len(data) // 3], data[len(data) // 3 : 2 * len(data) // 3], data[2 * len(data) // 3 :]]
about = {"filename": "parts.jsonl", "purpose": "batch", "bytes": len(data), "mime_type": "application/jsonl"}


def part(name, of, chunk):
    return step(name, lambda h: client.uploads.parts.create(of, data=chunk, extra_headers=h))


def complete(name, of, parts, **params):
    return step(name, lambda h: client.uploads.complete(of, part_ids=parts, extra_headers=h, **params))


whole = step("parts create", lambda h: client.uploads.create(extra_headers=h, **about))
with ThreadPoolExecutor(3) as pool:
    sent = {n: pool.submit(part, f"part {n}", whole.id, thirds[n]) for n in (2, 0, 1)}
order = [sent[n].result().id for n in range(3)]
joined = complete("complete", whole.id, order, md5=hashlib.md5(data).hexdigest())
complete("complete again", whole.id, order, md5=hashlib.md5(data).hexdigest())
complete("complete otherwise", whole.id, order[::-1])
part("part after complete", whole.id, b"more")
content("content of parts", joined.file.id)

spoilt = step("spoilt create", lambda h: client.uploads.create(extra_headers=h, **about))
one = part("spoilt part", spoilt.id, data)
complete("complete wrong md5", spoilt.id, [one.id], md5="0" * 32)
complete("complete unknown part", spoilt.id, ["part_none"])
half = part("spoilt second part", spoilt.id, b"too much")
complete("complete wrong bytes", spoilt.id, [one.id, half.id])
step("cancel upload", lambda h: client.uploads.cancel(spoilt.id, extra_headers=h))
step("cancel upload again", lambda h: client.uploads.cancel(spoilt.id, extra_headers=h))
part("part after cancel", spoilt.id, b"more")
complete("complete after cancel", spoilt.id, [one.id])
part("part of nothing", "upload_none", b"more")

# Batches in; two of them through a front that fails.
main = create("create", buffered.id, metadata={"name": "é"}, output_expires_after={"anchor": "created_at", "seconds": 3600})
failed = create("create failing", failing.id)
hung = create("create slow", slow.id)
lost = create("create lost", buffered.id, metadata={"name": "lost"})
create("create refused", buffered.id, metadata={"name": "refused"})
keyed = create("create keyed", joined.file.id, {"Idempotency-Key": "one"})
create("create keyed again", joined.file.id, {"Idempotency-Key": "one"})
create("create keyed otherwise", buffered.id, {"Idempotency-Key": "one"})
create("create without window", buffered.id, completion_window=openai.omit)
create("create wrong endpoint", buffered.id, endpoint="/v1/nothing")
create("create wrong window", buffered.id, completion_window="25h")
create("create wrong metadata", buffered.id, metadata={"k" * 65: "v"})
create("create missing file", "file-none")

# Lists: six batches are three full pages of two.
step("list", lambda h: ids(client.batches.list(limit=2, extra_headers=h)))
step("list unknown cursor", lambda h: ids(client.batches.list(after="batch_none", extra_headers=h)))
create("create twin", buffered.id, metadata={"name": "é"}, output_expires_after={"anchor": "created_at", "seconds": 3600})

# Cancel: while it runs, again, and when it is over.
wait("slow started", hung, ("in_progress",))
step("delete in use", lambda h: client.files.delete(slow.id, extra_headers=h))
step("cancel", lambda h: client.batches.cancel(hung.id, extra_headers=h))
step("cancel again", lambda h: client.batches.cancel(hung.id, extra_headers=h))
done = wait("completed", main)
step("cancel over", lambda h: client.batches.cancel(main.id, extra_headers=h))
step("cancel missing", lambda h: client.batches.cancel("batch_none", extra_headers=h))
step("batch missing", lambda h: client.batches.retrieve("batch_none", extra_headers=h))
content("output", done.output_file_id)
content("errors", done.error_file_id)
content("all errors", wait("all failed", failed).error_file_id)
for name, batch in (("lost over", lost), ("keyed over", keyed)):
    wait(name, batch)
content("cancelled errors", wait("cancelled", hung).error_file_id)

# Files out.
step("files", lambda h: ids(client.files.list(purpose="batch", extra_headers=h)))
step("files ascending", lambda h: ids(client.files.list(purpose="batch", order="asc", limit=2, extra_headers=h)))
step("files after", lambda h: ids(client.files.list(purpose="batch", order="asc", after=buffered.id, extra_headers=h)))
step("files of results", lambda h: ids(client.files.list(purpose="batch_output", extra_headers=h)))
step("files unknown cursor", lambda h: ids(client.files.list(after="file-none", extra_headers=h)))
step("delete", lambda h: client.files.delete(streamed.id, extra_headers=h))
step("delete again", lambda h: client.files.delete(streamed.id, extra_headers=h))
step("file deleted", lambda h: client.files.retrieve(streamed.id, extra_headers=h))

# Models; no entry; a server that is down.
step("models", lambda h: ids(client.models.list(extra_headers=h)))
step("model", lambda h: client.models.retrieve("sim", extra_headers=h))
step("model missing", lambda h: client.models.retrieve("none", extra_headers=h))
step("wrong key", lambda h: ids(stranger.batches.list(extra_headers=h)))
step("down", lambda h: ids(client.models.list(extra_headers=h)))
