#!/usr/bin/env python3
"""Invokes a deployed function with a sample event, or prints what the functions logged.

  function.py invoke OUTPUTS NAME EVENT.json     exit 1 when the function answers with an error, or it is no event
  function.py logs   OUTPUTS [NAME...]           the last lines of each

NAME is the folder under functions/. AWS_ENDPOINT_URL says where, as for every client.
"""

import base64
import json
import signal
import sys

import botocore.config
import botocore.session

LINES = 100  # per function


def client(service):
    return botocore.session.get_session().create_client(service, config=botocore.config.Config(read_timeout=900, retries={"total_max_attempts": 1}))


def deployed(outputs):
    """Folder name -> function name, from the stack's outputs such as WorkFunctionName."""
    with open(outputs, encoding="utf-8") as file:
        stack = json.load(file)["Holdfast"]
    end = "FunctionName"
    return {key[: -len(end)].lower(): value for key, value in stack.items() if key.endswith(end)}


def event_in(path):
    """The bytes of an event: one JSON object, which is what every handler takes."""
    with open(path, "rb") as file:
        text = file.read()
    try:
        what = "an object" if isinstance(json.loads(text), dict) else "something else"
    except (ValueError, RecursionError) as why:
        what = str(why)
    if what != "an object":
        sys.exit(
            f"{path} is no event ({what}): an event is one JSON object, as in events/*.json."
            " A file of requests is no event: .local/bin/holdfast submit FILE --wait"
        )
    return text


MARK = "\0" * 8  # between the head of a streamed answer and its body


def shown(payload):
    """An answer for a person. Of a streamed one that is its head, and then its body."""
    text = payload.decode("utf-8", "replace")
    stream = text
    if text.startswith('"'):  # the emulator quotes a stream
        try:
            stream = json.loads(text)
        except ValueError:
            pass
    head, mark, body = stream.partition(MARK)
    return f"{head}\n\n{body}" if mark else text


def invoke(outputs, name, event):
    functions = deployed(outputs)
    if name not in functions:
        sys.exit(f"no function {name}; there are {', '.join(sorted(functions))}")
    answer = client("lambda").invoke(FunctionName=functions[name], Payload=event_in(event), LogType="Tail")
    print(base64.b64decode(answer.get("LogResult", "")).decode("utf-8", "replace").rstrip(), file=sys.stderr)
    print(shown(answer["Payload"].read()))
    return 1 if answer.get("FunctionError") else 0


def logs(outputs, *names):
    service = client("logs")
    for name, function in sorted(deployed(outputs).items()):
        if names and name not in names:
            continue
        print(f"==> {name} ({function})")
        events, token = [], {}
        while True:
            try:
                # The stack names its log groups itself (infra/functions.go).
                page = service.filter_log_events(logGroupName=f"/holdfast/{name}", **token)
            except service.exceptions.ResourceNotFoundException:
                sys.exit(f"no log group /holdfast/{name}: the stack is another than this program knows")
            events = (events + page["events"])[-LINES:]
            if not page.get("nextToken"):
                break
            token = {"nextToken": page["nextToken"]}
        if not events:
            print("nothing yet")
        for event in events:
            print(event["message"].rstrip())
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `make logs | head` ends quietly
    verbs = {"invoke": (invoke, 3, 3), "logs": (logs, 1, 100)}
    if len(sys.argv) < 2 or sys.argv[1] not in verbs or not verbs[sys.argv[1]][1] <= len(sys.argv) - 2 <= verbs[sys.argv[1]][2]:
        sys.exit(__doc__)
    sys.exit(verbs[sys.argv[1]][0](*sys.argv[2:]))
