#!/usr/bin/env python3
"""Starts, watches and wholly ends processes; standard library only.

The local stack's two servers (the emulator and the simulated model) must
survive the command that started them and must end wholly at `make down`. The
emulator's own children, the warm function processes, outlive it otherwise:
nobody waits for them and SIGTERM does not reach them.

A process belongs to us if it carries our marker, a random value that `start`
puts in its environment and that its children inherit. A process id alone
proves nothing: ids are used again, and a stale state file must never end a
stranger. Where an environment can't be read (macOS) the process group and the
time its leader started stand in for the marker.

  process.py start  --state FILE --log FILE (--ready-url URL [--ca FILE] | --ready-line TEXT) [--timeout S] -- COMMAND...
  process.py stop   --state FILE [--grace S]     ends leader, children and strays; fine when nothing runs
  process.py alive  --state FILE                 exit 0 while the leader runs
  process.py run    [--log FILE --label TEXT] -- COMMAND...   in the foreground; ends the command's children too when interrupted
  process.py lock   FILE [--busy TEXT] -- COMMAND...   one at a time across terminals; with a text, says it and exits 1 instead of waiting
  process.py port   PORT                         exit 1 when something listens on the loopback port
  process.py ports  N                            prints N free ports
"""

import argparse
import collections
import contextlib
import fcntl
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid

MARKER = "LOCAL_AWS_PROCESS"
KERNEL_THREAD = 0x00200000  # of a process's flags: it has no environment and is nobody's
UNSURE = 1.0  # seconds that a process whose environment can't be seen is waited for

Process = collections.namedtuple("Process", "pid group started zombie")


def processes():
    """Every process that can be seen: Process tuples; `started` is opaque, equal only for one life of a pid."""
    if os.path.isdir("/proc/self"):
        return list(_from_proc())
    return list(_from_ps())


def _from_proc():
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()  # start times count from it, so they repeat after a restart of the machine
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError):
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    # The command, in parentheses, may itself hold spaces and parentheses.
                    fields = file.read().rpartition(")")[2].split()
                if int(fields[6]) & KERNEL_THREAD:
                    continue
                yield Process(int(name), int(fields[2]), f"{boot} {fields[19]}", fields[0] in "ZX")


def _from_ps():
    listing = subprocess.run(["ps", "-axo", "pid=,pgid=,stat=,lstart="], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        pid, group, state, started = line.split(None, 3)
        yield Process(int(pid), int(group), started.strip(), state.startswith("Z"))


def _environment(pid):
    """The variables a process started with, as bytes; None while it has none to show, b"" where we may not look or it is gone.

    Twice in its life a living process shows nothing: between the halves of an exec, and from
    the moment it gives its memory back until it is a zombie, long for a large one on a busy machine.
    """
    try:
        for _ in range(2):
            with open(f"/proc/{pid}/environ", "rb") as file:
                text = file.read()
            with open(f"/proc/{pid}/stat", "rb") as file:
                end = int(file.read().rpartition(b")")[2].split()[48])  # where it ends in its memory; 0: nowhere yet, or no longer
            if text or end == 0:
                return text or None
        return b""  # seen twice with a memory of its own: started with an empty one
    except (PermissionError, FileNotFoundError):  # denied to us, or gone
        return b""
    except OSError:
        return None


def ours(state):
    """The living processes that belong to a started one, leader, children and strays, never a stranger;
    and those of which it can't be told at this moment."""
    living = [p for p in processes() if not p.zombie and p.pid != os.getpid()]
    leader = [p for p in living if p.pid == state["pid"]]
    if not os.path.isdir("/proc/self"):
        if leader and leader[0].started != state["started"]:
            return [], []  # The id was used again: its group is a stranger's.
        return [p for p in living if p.group == state["pid"]], []
    sure, unsure = [], []
    for process in living:
        if process in leader and process.started == state["started"]:
            sure.append(process)
            continue
        environment = _environment(process.pid)
        if environment is None:
            unsure.append(process)
        elif f"{MARKER}={state['marker']}".encode() in environment.split(b"\0"):
            sure.append(process)
    return sure, unsure


def _leader(state):
    return any(p.pid == state["pid"] and p.started == state["started"] and not p.zombie for p in processes())


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            state = json.load(file)
        return {"pid": int(state["pid"]), "started": str(state["started"]), "marker": str(state["marker"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # Nothing in a damaged file can be trusted to name our own process.
        print(f"{path} is damaged; ignoring it", file=sys.stderr)
        return None


def _become(command, log, state_path, marker):
    """In the forked child: a session of its own, its state on disk, then the command. Never returns."""
    os.setsid()
    me = next(p for p in processes() if p.pid == os.getpid())
    state = {"pid": me.pid, "started": me.started, "marker": marker, "command": command}
    # Written by the child before it becomes the command, so that no moment exists in which it runs unrecorded.
    with open(state_path + ".new", "w", encoding="utf-8") as file:
        json.dump(state, file)
    os.replace(state_path + ".new", state_path)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.closerange(3, 256)  # an inherited lock would be held as long as the server lives
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    os.environ[MARKER] = marker
    os.execvp(command[0], command)


def start(arguments):
    previous = _read(arguments.state)
    if previous:
        if _leader(previous):
            print("already running", file=sys.stderr)
            return 0
        _end(previous, 0)  # children that a killed leader left behind
    os.makedirs(os.path.dirname(arguments.state) or ".", exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        os.replace(arguments.log, arguments.log + ".previous")
    child = os.fork()
    if child == 0:
        try:
            _become(arguments.command, arguments.log, arguments.state, uuid.uuid4().hex)
        except BaseException as fault:  # the child must not go on as a second parent
            with open(arguments.log, "a", encoding="utf-8") as file:
                file.write(f"cannot start {arguments.command[0]}: {fault}\n")
        os._exit(127)
    deadline = time.monotonic() + arguments.timeout
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _failed(arguments, f"ended with status {os.waitstatus_to_exitcode(status)} before it was ready")
        if _ready(arguments):
            return 0
        time.sleep(0.05)
    return _failed(arguments, f"was not ready after {arguments.timeout:g} s")


def _failed(arguments, why):
    stop(arguments)
    print(f"{os.path.basename(arguments.command[0])} {why}. The end of {arguments.log}:", file=sys.stderr)
    with contextlib.suppress(OSError):
        with open(arguments.log, encoding="utf-8", errors="replace") as file:
            sys.stderr.writelines("  " + line for line in collections.deque(file, 20))
    return 1


def _ready(arguments):
    if arguments.ready_line:
        try:
            with open(arguments.log, encoding="utf-8", errors="replace") as file:
                return any(arguments.ready_line in line for line in file)
        except FileNotFoundError:
            return False
    context = ssl.create_default_context(cafile=arguments.ca) if arguments.ca else None
    handlers = [urllib.request.ProxyHandler({})]  # never ask a proxy for loopback
    if context:
        handlers.append(urllib.request.HTTPSHandler(context=context))
    try:
        with urllib.request.build_opener(*handlers).open(arguments.ready_url, timeout=2) as answer:
            return answer.status == 200
    except (OSError, ValueError):
        return False


def stop(arguments):
    state = _read(arguments.state)
    if state:
        ended, left = _end(state, getattr(arguments, "grace", 0))
        if left:
            print(f"still running after SIGKILL: {left}", file=sys.stderr)
            return 1
        if ended:
            name = os.path.splitext(os.path.basename(arguments.state))[0]
            print(f"{name}: ended {ended} process{'es' if ended > 1 else ''}")
    with contextlib.suppress(FileNotFoundError):
        os.remove(arguments.state)
    return 0


def _end(state, grace):
    """TERM, the grace in seconds, then KILL until nothing of ours is left; returns how many it ended and who survived."""
    seen = {}  # once ours, ours until it is gone: a dying process no longer shows whose it is
    doubted = {}  # when each of the others first showed nothing

    def left():
        sure, unsure = ours(state)
        seen.update({(p.pid, p.started): p for p in sure})
        now = time.monotonic()
        known = [p for p in unsure if (p.pid, p.started) in seen]
        others = [p for p in unsure if p not in known and now - doubted.setdefault((p.pid, p.started), now) < UNSURE]
        return sure + known, others

    def send(number):
        for process in left()[0]:
            with contextlib.suppress(OSError):
                os.kill(process.pid, number)

    def gone(seconds):
        deadline = time.monotonic() + seconds
        while any(left()):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    if grace > 0:
        send(signal.SIGTERM)
        if gone(grace):
            return len(seen), []
    for _ in range(50):  # the leader may fork while we look
        send(signal.SIGKILL)
        if gone(0.1):
            return len(seen), []
    return len(seen), [p.pid for p in left()[0]]


def alive(arguments):
    state = _read(arguments.state)
    return 0 if state and _leader(state) else 1


def run(arguments):
    marker = uuid.uuid4().hex
    output = open(arguments.log, "wb") if arguments.log else None
    interrupted = []
    # Before the child exists, so that no interrupt can part us from it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: interrupted.append(number))
    # A session of its own: an interrupt of the terminal reaches only us, and we end the whole tree.
    child = subprocess.Popen(arguments.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT if output else None,
                             env={**os.environ, MARKER: marker}, start_new_session=True)
    me = next((p for p in processes() if p.pid == child.pid), None)
    state = {"pid": child.pid, "started": me.started if me else "", "marker": marker}
    began = shown = time.monotonic()
    while child.poll() is None and not interrupted:
        time.sleep(0.02)
        now = time.monotonic()
        if arguments.label and now - shown >= (1 if sys.stdout.isatty() else 30):
            shown = now
            _tick(arguments.label, now - began)
    if arguments.label and sys.stdout.isatty():
        print("\r\033[K", end="", flush=True)
    if interrupted:
        _end(state, 2)
        child.wait()
        return 128 + interrupted[0]
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _tick(label, seconds):
    if sys.stdout.isatty():
        print(f"\r\033[K{label} … {seconds:.0f} s", end="", flush=True)
    else:
        print(f"{label} … still at it after {seconds:.0f} s", flush=True)


def lock(arguments):
    os.makedirs(os.path.dirname(arguments.file) or ".", exist_ok=True)
    file = os.open(arguments.file, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (fcntl.LOCK_NB if arguments.busy else 0))
    except BlockingIOError:
        print(arguments.busy, file=sys.stderr)
        return 1
    # Held by the command itself, so that a signal meets it and nothing in between.
    os.set_inheritable(file, True)
    os.execvp(arguments.command[0], arguments.command)


def port(arguments):
    with socket.socket() as probe:
        probe.settimeout(1)
        if probe.connect_ex(("127.0.0.1", arguments.number)) == 0:
            return 1
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", arguments.number))
        except OSError:
            return 1
    return 0


def ports(arguments):
    held = [socket.socket() for _ in range(arguments.count)]
    for each in held:
        each.bind(("127.0.0.1", 0))
    print(*(each.getsockname()[1] for each in held))
    for each in held:
        each.close()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    verb = verbs.add_parser("start")
    verb.set_defaults(call=start)
    verb.add_argument("--state", required=True)
    verb.add_argument("--log", required=True)
    ready = verb.add_mutually_exclusive_group(required=True)
    ready.add_argument("--ready-url")
    ready.add_argument("--ready-line")
    verb.add_argument("--ca")
    verb.add_argument("--timeout", type=float, default=30)
    verb = verbs.add_parser("stop")
    verb.set_defaults(call=stop)
    verb.add_argument("--state", required=True)
    verb.add_argument("--grace", type=float, default=2)
    verb = verbs.add_parser("alive")
    verb.set_defaults(call=alive)
    verb.add_argument("--state", required=True)
    verb = verbs.add_parser("run")
    verb.set_defaults(call=run)
    verb.add_argument("--log")
    verb.add_argument("--label")
    verb = verbs.add_parser("lock")
    verb.set_defaults(call=lock)
    verb.add_argument("file")
    verb.add_argument("--busy")
    verb = verbs.add_parser("port")
    verb.set_defaults(call=port)
    verb.add_argument("number", type=int)
    verb = verbs.add_parser("ports")
    verb.set_defaults(call=ports)
    verb.add_argument("count", type=int)
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    arguments = parser.parse_args(words[:at])
    arguments.command = words[at + 1:]
    if arguments.call in (start, run, lock) and not arguments.command:
        parser.error("no command after --")
    return arguments.call(arguments)


if __name__ == "__main__":
    sys.exit(main())
