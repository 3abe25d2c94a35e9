package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// role is what a process does: the stack's output that names its function.
type role string

const (
	working   role = "WorkFunctionName"
	ingesting role = "IngestFunctionName"
	answering role = "ApiFunctionName"
	reaping   role = "ReapFunctionName"
)

// process is one that runs; the zero value is none that is known here.
type process struct {
	pid  int
	role role
}

// processes are those of the stack's functions: the local AWS runs functions as
// processes of this machine. They are told by what their environment holds, and no
// other process is ever touched.
type processes struct {
	marked    []byte // of this stack: localstack/process.py gives it to all that it starts
	functions map[role][]byte
}

// processesOf reads what tells them from the stack's folder (HOLDFAST_LOCAL).
func processesOf(folder string) (processes, error) {
	var state struct{ Marker string }
	if err := readJSON(filepath.Join(folder, "run", "emulator.json"), &state); err != nil {
		return processes{}, err
	}
	var outputs map[string]map[string]string
	if err := readJSON(filepath.Join(folder, "run", "stack", "outputs.json"), &outputs); err != nil {
		return processes{}, err
	}
	p := processes{[]byte("LOCAL_AWS_PROCESS=" + state.Marker), map[role][]byte{}}
	for _, stack := range outputs {
		for _, r := range []role{working, ingesting, answering, reaping} {
			if name := stack[string(r)]; name != "" {
				p.functions[r] = []byte("AWS_LAMBDA_FUNCTION_NAME=" + name)
			}
		}
	}
	if state.Marker == "" || len(p.functions) < 4 {
		return processes{}, fmt.Errorf("%s: not every function was deployed: %q", folder, slices.Sorted(maps.Keys(p.functions)))
	}
	return p, nil
}

// running are those that run.
func (p processes) running() (all []process) {
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
		marked, found := false, role("")
		for v := range bytes.SplitSeq(environ, []byte{0}) {
			marked = marked || bytes.Equal(v, p.marked)
			for r, name := range p.functions {
				if bytes.Equal(v, name) {
					found = r
				}
			}
		}
		if marked && found != "" {
			all = append(all, process{pid, found})
		}
	}
	return all
}

// workers are the ids of those that run lines.
func (p processes) workers() (pids []int) {
	for _, one := range p.running() {
		if one.role == working {
			pids = append(pids, one.pid)
		}
	}
	return pids
}

// at says which of them has the local end of a connection.
func (p processes) at(port int) process {
	socket := ""
	for s, its := range sockets() {
		if its == port {
			socket = s
		}
	}
	if socket == "" {
		return process{}
	}
	for _, one := range p.running() {
		if slices.Contains(opened(one.pid), socket) {
			return one
		}
	}
	return process{}
}

// ports are the local ends of a process's connections over loopback.
func ports(pid int) map[int]bool {
	all, found := sockets(), map[int]bool{}
	for _, s := range opened(pid) {
		if port, ok := all[s]; ok {
			found[port] = true
		}
	}
	return found
}

// opened are the sockets that a process has open, as /proc names them.
func opened(pid int) (names []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:[") {
			names = append(names, to)
		}
	}
	return names
}

// sockets are the connections over loopback that somebody has open: the local port of
// each, under the name that its socket has in /proc. The system takes milliseconds to
// list them.
func sockets() map[string]int {
	all := map[string]int{}
	table, _ := os.ReadFile("/proc/net/tcp")
	for line := range strings.Lines(string(table)) {
		// sl local_address rem_address st queues timer retransmits uid timeout inode
		f := strings.Fields(line)
		if len(f) < 10 || f[9] == "0" { // 0: of nobody any more
			continue
		}
		if hex, ok := strings.CutPrefix(f[1], "0100007F:"); ok {
			if port, err := strconv.ParseInt(hex, 16, 32); err == nil {
				all["socket:["+f[9]+"]"] = int(port)
			}
		}
	}
	return all
}

// signal sends a signal. One that is gone already is no error.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%v for process %d: %w", s, pid, err)
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
