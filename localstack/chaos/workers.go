package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// workers are the processes of the stack's work function: the local AWS runs
// functions as processes of this machine. They are told by what their environment
// holds, and no other process is ever touched.
type workers struct {
	marked   []byte // of this stack: localstack/process.py gives it to all that it starts
	function []byte
}

// workersOf reads what tells them from the stack's folder (HOLDFAST_LOCAL).
func workersOf(folder string) (workers, error) {
	var state struct{ Marker string }
	if err := readJSON(filepath.Join(folder, "run", "emulator.json"), &state); err != nil {
		return workers{}, err
	}
	var outputs map[string]map[string]string
	if err := readJSON(filepath.Join(folder, "run", "stack", "outputs.json"), &outputs); err != nil {
		return workers{}, err
	}
	for _, stack := range outputs {
		if name := stack["WorkFunctionName"]; name != "" && state.Marker != "" {
			return workers{[]byte("LOCAL_AWS_PROCESS=" + state.Marker), []byte("AWS_LAMBDA_FUNCTION_NAME=" + name)}, nil
		}
	}
	return workers{}, fmt.Errorf("%s: no work function was deployed", folder)
}

// alive are the ids of those that run.
func (w workers) alive() (pids []int) {
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		pid, err := strconv.Atoi(d.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		marked, named := false, false
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			marked = marked || bytes.Equal(v, w.marked)
			named = named || bytes.Equal(v, w.function)
		}
		if marked && named {
			pids = append(pids, pid)
		}
	}
	return pids
}

// at says which worker has the local end of a connection; 0: none.
func (w workers) at(port int) int {
	for _, pid := range w.alive() {
		if ports(pid)[port] {
			return pid
		}
	}
	return 0
}

// ports are the local ends of a process's connections over loopback.
func ports(pid int) map[int]bool {
	sockets := map[string]bool{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil {
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	found := map[int]bool{}
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st queues timer retransmits uid timeout inode
		f := strings.Fields(line)
		if len(f) < 10 || !sockets[f[9]] {
			continue
		}
		if hex, ok := strings.CutPrefix(f[1], "0100007F:"); ok {
			if port, err := strconv.ParseInt(hex, 16, 32); err == nil {
				found[int(port)] = true
			}
		}
	}
	return found
}

// signal sends a signal. One that is gone already is no error.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%v for worker %d: %w", s, pid, err)
	}
	return nil
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
