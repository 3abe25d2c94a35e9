package localstack

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// supervise runs process.py and returns what it printed and its exit status.
func supervise(t *testing.T, arguments ...string) (string, int) {
	t.Helper()
	return command(t, "python3", append([]string{"process.py"}, arguments...)...)
}

func command(t *testing.T, name string, arguments ...string) (string, int) {
	t.Helper()
	var output bytes.Buffer
	cmd := exec.Command(name, arguments...) // no context: clean-up calls it too
	cmd.Stdout, cmd.Stderr = &output, &output
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatalf("run %s: %v", name, err)
	}
	return output.String(), cmd.ProcessState.ExitCode()
}

// family is a server as unruly as the emulator: it ignores TERM, and so do its
// two children, one of which has left the process group. It prints their ids.
const family = `
trap '' TERM
sh -c 'trap "" TERM; while :; do sleep 1; done' & one=$!
python3 -c 'import os, signal, time; os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)' & two=$!
echo "$one $two ready"
while :; do sleep 1; done
`

func startFamily(t *testing.T) (state string, pids []int) {
	t.Helper()
	dir := t.TempDir()
	state, log := filepath.Join(dir, "family.json"), filepath.Join(dir, "family.log")
	output, status := supervise(t, "start", "--state", state, "--log", log, "--ready-line", "ready", "--", "sh", "-c", family)
	t.Cleanup(func() {
		if output, status := command(t, "python3", "process.py", "stop", "--state", state, "--grace", "0"); status != 0 {
			t.Errorf("clean-up: %s", output)
		}
	})
	if status != 0 {
		t.Fatalf("start: %s", output)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	pids = append(pids, readState(t, state).PID)
	for _, word := range strings.Fields(strings.Split(string(text), " ready")[0]) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return state, pids
}

type record struct {
	PID     int    `json:"pid"`
	Started string `json:"started"`
	Marker  string `json:"marker"`
}

func readState(t *testing.T, path string) record {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// running tells whether a process lives; one that ended and waits to be reaped does not.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true // no /proc on this system
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}

func TestStopLeavesNothing(t *testing.T) {
	state, pids := startFamily(t)
	for _, pid := range pids {
		if !running(pid) {
			t.Fatalf("process %d of %v does not run", pid, pids)
		}
	}
	if output, status := supervise(t, "stop", "--state", state, "--grace", "0.2"); status != 0 {
		t.Fatalf("stop: %s", output)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d outlived stop", pid)
		}
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state file is still there: %v", err)
	}
	if output, status := supervise(t, "stop", "--state", state); status != 0 || output != "" {
		t.Errorf("stopping twice: %d %q, want silence", status, output)
	}
}

func TestStopFindsChildrenOfAKilledLeader(t *testing.T) {
	state, pids := startFamily(t)
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if output, status := supervise(t, "stop", "--state", state, "--grace", "0.1"); status != 0 {
		t.Fatalf("stop: %s", output)
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d outlived stop", pid)
		}
	}
}

func TestStaleStateSparesAStranger(t *testing.T) {
	stranger := exec.CommandContext(t.Context(), "sleep", "600")
	stranger.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its own group, as a recycled leader's id would be
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stranger.Process.Kill(); stranger.Wait() })
	state := filepath.Join(t.TempDir(), "stale.json")
	for name, text := range map[string]string{
		"recycled id": fmt.Sprintf(`{"pid": %d, "started": "1", "marker": "of another life"}`, stranger.Process.Pid),
		"damaged":     `{"pid": `,
		"foreign":     strconv.Itoa(stranger.Process.Pid),
	} {
		if err := os.WriteFile(state, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if output, status := supervise(t, "stop", "--state", state, "--grace", "0.1"); status != 0 {
			t.Errorf("%s: stop: %s", name, output)
		}
		if !running(stranger.Process.Pid) {
			t.Fatalf("%s: stop ended a stranger", name)
		}
	}
}

func TestStartTellsWhyItFailed(t *testing.T) {
	dir := t.TempDir()
	state := filepath.Join(dir, "failing.json")
	output, status := supervise(t, "start", "--state", state, "--log", filepath.Join(dir, "log"), "--ready-line", "ready", "--", "sh", "-c", "echo no disk left; exit 3")
	if status != 1 || !strings.Contains(output, "status 3") || !strings.Contains(output, "no disk left") {
		t.Errorf("exit %d, said %q; want 1, the status and the log's end", status, output)
	}
	if _, err := os.Stat(state); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state file is still there: %v", err)
	}
}

func TestPortInUse(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	if _, status := supervise(t, "port", port); status != 1 {
		t.Errorf("port %s in use: exit %d, want 1", port, status)
	}
	listener.Close()
	if _, status := supervise(t, "port", port); status != 0 {
		t.Errorf("port %s free: exit %d, want 0", port, status)
	}
}

// An interrupted stage must not leave the compiler or the tests it ran behind.
func TestRunInterruptedEndsTheTree(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	cmd := exec.CommandContext(t.Context(), "python3", "process.py", "run", "--log", log, "--", "sh", "-c", family)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for deadline := time.Now().Add(20 * time.Second); len(pids) == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the family never came up")
		}
		text, _ := os.ReadFile(log)
		if ids, _, ready := strings.Cut(string(text), " ready"); ready {
			for _, word := range strings.Fields(ids) {
				pid, err := strconv.Atoi(word)
				if err != nil {
					t.Fatal(err)
				}
				pids = append(pids, pid)
			}
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("exit %d, want %d", status, 128+int(syscall.SIGTERM))
	}
	for _, pid := range pids {
		if running(pid) {
			t.Errorf("process %d outlived the interrupt", pid)
		}
	}
}
