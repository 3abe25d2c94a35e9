package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watch follows the processes of a local stack: what memory and processor the
// emulator, the model and each function took. It reads /proc, and sees nothing
// on a system without one.
type watch struct {
	marked map[string]string // marker of localstack/process.py → emulator or model
	named  map[string]string // a deployed function's name → api, plan, work, finish
	mu     sync.Mutex
	seen   map[int]*sight // by process id; functions live as long as their stack's deploy
	stop   context.CancelFunc
	ended  chan struct{}
}

// sight is what was last seen of one process.
type sight struct {
	name   string
	peak   int64         // of its resident memory, bytes
	cpu    time.Duration // used so far
	before time.Duration // used when the watch began
}

// watchEvery is how often it looks. The kernel keeps peaks, so a look misses only
// what a process did after it and before its end.
const watchEvery = 200 * time.Millisecond

// newWatch begins to watch the stack in folder (HOLDFAST_LOCAL).
func newWatch(folder string) (*watch, error) {
	w := &watch{marked: map[string]string{}, named: map[string]string{}, seen: map[int]*sight{}, ended: make(chan struct{})}
	for _, name := range []string{"emulator", "model"} {
		var state struct{ Marker string }
		if err := readJSON(filepath.Join(folder, "run", name+".json"), &state); err != nil {
			return nil, err
		}
		w.marked[processMarker+state.Marker] = name
	}
	var outputs map[string]map[string]string
	if err := readJSON(filepath.Join(folder, "run", "stack", "outputs.json"), &outputs); err != nil {
		return nil, err
	}
	for _, stack := range outputs {
		for name, value := range stack {
			if short, ok := strings.CutSuffix(name, "FunctionName"); ok {
				w.named[value] = strings.ToLower(short)
			}
		}
	}
	w.look()
	for _, s := range w.seen {
		s.before = s.cpu
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	go func() {
		defer close(w.ended)
		tick := time.NewTicker(watchEvery)
		defer tick.Stop()
		for {
			w.look()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w, nil
}

// close ends the watch.
func (w *watch) close() {
	w.stop()
	<-w.ended
}

// The variables by which a process of the stack is told: localstack/process.py
// gives the first to all that it starts, the emulator the second to a function.
const (
	processMarker  = "LOCAL_AWS_PROCESS="
	functionMarker = "AWS_LAMBDA_FUNCTION_NAME="
)

// name says what a process is; empty: not the stack's. Functions have the same
// names on every stack of a machine, so the marker must be this one's.
func (w *watch) name(environ []byte) string {
	of, function := "", ""
	for v := range bytes.SplitSeq(environ, []byte{0}) {
		if name, ok := w.marked[string(v)]; ok {
			of = name
		}
		if name, ok := bytes.CutPrefix(v, []byte(functionMarker)); ok {
			function = w.named[string(name)]
		}
	}
	if of == "" || function == "" {
		return of
	}
	return function
}

// look notes what every process of the stack has used by now.
func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, _ := os.ReadDir("/proc")
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue
		}
		name := w.name(environ)
		if name == "" {
			continue
		}
		s := w.seen[pid]
		if s == nil {
			s = &sight{}
			w.seen[pid] = s
		}
		s.name = name // a function begins as a copy of the emulator
		if peak, ok := highWater(pid); ok {
			s.peak = peak // the kernel's own maximum, begun anew when the copy became the function
		}
		if cpu, ok := cpuOf(pid); ok {
			s.cpu = cpu
		}
	}
}

// usage is what the processes of one name took.
type usage struct {
	processes int
	peak      int64         // of the largest, bytes
	cpu       time.Duration // since the watch began
}

// usage sums by name up to now. What did nothing since the watch began, the
// functions of the deploy before for one, is left out.
func (w *watch) usage() map[string]usage {
	w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	sum := map[string]usage{}
	for _, s := range w.seen {
		if s.cpu == s.before && s.before > 0 {
			continue
		}
		u := sum[s.name]
		u.processes++
		u.peak = max(u.peak, s.peak)
		u.cpu += s.cpu - s.before
		sum[s.name] = u
	}
	if used, ok := machineCPU(); ok {
		sum[machine] = usage{cpu: used}
	}
	return sum
}

// machine is everything that runs, the stack or not, in what [watch.usage]
// returns: it has processor time only, since the machine started.
const machine = "machine"

// machineCPU reads the processor time that everything has used.
func machineCPU() (time.Duration, bool) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, false
	}
	var user, nice, system int64 // what comes behind them is idle or a hypervisor's
	n, err := fmt.Sscanf(string(stat), "cpu %d %d %d", &user, &nice, &system)
	return time.Duration(user+nice+system) * time.Second / ticks, n == 3 && err == nil
}

// ticks is how many parts of a second the kernel counts processor time in, as it
// tells programs on every architecture that Linux has today.
const ticks = 100

// cpuOf reads the processor time that a process has used.
func cpuOf(pid int) (time.Duration, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// The command, in parentheses, may itself hold spaces and parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticks, err1 == nil && err2 == nil
}

// diskOf is what a folder takes on disk, in bytes.
func diskOf(folder string) (int64, error) {
	var sum int64
	err := filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				if s, ok := info.Sys().(*syscall.Stat_t); ok {
					sum += s.Blocks * 512
				}
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a log was turned over meanwhile
		}
		return err
	})
	return sum, err
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
