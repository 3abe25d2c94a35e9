package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/objects"
	"holdfast/internal/batch"
	"holdfast/internal/bench"
)

// What finishing is measured with: a file of the default size, with replies of 4
// KB; and 1 million such lines, for memory.
const (
	finishLines = 50_000
	finishMany  = 1_000_000
	finishSome  = 200_000 // beside which many must cost no more; fewer end before progress is recorded once
	finishReply = 4 << 10
	finishLong  = 600     // lines
	longReply   = 1 << 20 // with these a part is too large to be held, and is streamed
	finishTurns = 5
	finishBound = 96   // MiB
	finishMore  = 1.05 // times the memory of finishSome: what is left is noise
)

// finishing measures the finisher through the real S3 adapter against a store of
// another process, beside a plain copy of the same bytes; each run is a process of
// its own.
func finishing() ([]figure, error) {
	folder, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	parts, err := storeChunks(folder)
	if err != nil {
		return nil, err
	}
	at, stop, err := startStore(folder)
	if err != nil {
		return nil, err
	}
	defer stop()
	var best, plainest float64 // seconds: the machine has other things to do
	var run bench.FinishRun
	var peak int64
	for range finishTurns {
		plain, err := finishChild("copy", at, parts)
		if err != nil {
			return nil, fmt.Errorf("copy: %w", err)
		}
		if run, err = finishChild("finish", at, parts); err != nil {
			return nil, err
		}
		if run.Bytes != plain.Bytes {
			return nil, fmt.Errorf("%d bytes were merged, %d copied", run.Bytes, plain.Bytes)
		}
		peak = max(peak, run.Peak)
		if best == 0 || run.Seconds < best {
			best = run.Seconds
		}
		if plainest == 0 || plain.Seconds < plainest {
			plainest = plain.Seconds
		}
		// Its chunks are gone now, as they must be.
		if _, err := storeChunks(folder); err != nil {
			return nil, err
		}
	}
	disk, err := sizeOf(folder)
	if err != nil {
		return nil, err
	}
	some, err := finishChild("made", "", strconv.Itoa(finishSome))
	if err != nil {
		return nil, fmt.Errorf("%d lines: %w", finishSome, err)
	}
	many, err := finishChild("made", "", strconv.Itoa(finishMany))
	if err != nil {
		return nil, fmt.Errorf("%d lines: %w", finishMany, err)
	}
	long, err := finishChild("made-long", "", strconv.Itoa(finishLong))
	if err != nil {
		return nil, fmt.Errorf("long replies: %w", err)
	}
	const mib = 1 << 20
	megabytes := float64(run.Bytes) / 1e6
	return []figure{
		atLeast(fmt.Sprintf("finish, 50,000 lines of 4 KB (%.0f MB) through S3's adapter: speed, best of %d", megabytes, finishTurns), plainest/best, 0.5, "x a plain copy"),
		unbounded("  finishing", megabytes/best, "MB/s"),
		unbounded("  copying, one chunk after another", megabytes/plainest, "MB/s"),
		unbounded("  disk used by the store: chunks, three files, the copy", float64(disk)/1e6, "MB"),
		atMost("  peak RSS of finishing", float64(peak)/mib, finishBound, "MiB"),
		atMost(fmt.Sprintf("finish, 1 million lines of 4 KB (%.0f MB) in process: peak RSS", float64(many.Bytes)/1e6), float64(many.Peak)/mib, finishBound, "MiB"),
		unbounded("  finishing, chunks made meanwhile", float64(many.Bytes)/1e6/many.Seconds, "MB/s"),
		unbounded("  records of progress", float64(many.Saves), ""),
		atMost("  peak RSS beside that of 200,000 such lines in process", float64(many.Peak)/float64(some.Peak), finishMore, "x"),
		atMost(fmt.Sprintf("finish, %d lines of 1 MiB (%.0f MB) in process, streamed: peak RSS", finishLong, float64(long.Bytes)/1e6), float64(long.Peak)/mib, finishBound, "MiB"),
		atLeast("  times that a chunk was read on from somewhere within", float64(long.Resumed), 1, ""),
	}, nil
}

// storeChunks writes all chunks, and the parts that name them to a file.
func storeChunks(folder string) (partsFile string, err error) {
	r, err := bench.NewResults(finishLines, finishReply)
	if err != nil {
		return "", err
	}
	parts := r.Parts()
	store := bench.NewFileStore(folder)
	for _, p := range parts {
		for c := range p.Chunks {
			if err := store.Put(bench.FinishBucket, p.Chunks[c].Key, r.Open(p, c)); err != nil {
				return "", err
			}
		}
	}
	b, err := json.Marshal(parts)
	if err != nil {
		return "", err
	}
	partsFile = filepath.Join(folder, "parts.json")
	return partsFile, os.WriteFile(partsFile, b, 0o600)
}

// finishStore is the first argument of a process that is the store, over the
// folder that the second names. It says where it listens and ends with its input.
const finishStore = "finish-store"

func startStore(folder string) (at string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(self, finishStore, folder)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait() // it was told to end: how it does is nobody's concern
	}
	at, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("the store doesn't say where it listens: %w", err)
	}
	return strings.TrimSpace(at), stop, nil
}

func runFinishStore(folder string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: bench.NewFileStore(folder)}
	go srv.Serve(l)
	fmt.Println("http://" + l.Addr().String())
	_, _ = bufio.NewReader(os.Stdin).ReadByte() // until whoever started it ends
	return srv.Close()
}

// finishRun is the first argument of a process that finishes, or copies, and
// prints a bench.FinishRun: what, where the store is, and the file of the parts or
// how many lines to make.
const finishRun = "finish-run"

func finishChild(what, at, of string) (run bench.FinishRun, err error) {
	self, err := os.Executable()
	if err != nil {
		return run, err
	}
	cmd := exec.Command(self, finishRun, what, of)
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+at, "AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return run, fmt.Errorf("%w: %s", err, said.Bytes())
	}
	return run, json.Unmarshal(out, &run)
}

func runFinish(what, of string) error {
	debug.SetGCPercent(batch.FinisherGC) // as functions/finish does
	run, err := finishOf(what, of)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(run)
}

func finishOf(what, of string) (run bench.FinishRun, err error) {
	if what == "made" || what == "made-long" {
		reply := finishReply
		if what == "made-long" {
			reply = longReply
		}
		lines, err := strconv.Atoi(of)
		if err != nil {
			return run, err
		}
		return bench.FinishMade(lines, reply)
	}
	b, err := os.ReadFile(of)
	if err != nil {
		return run, err
	}
	var parts []batch.Part
	if err := json.Unmarshal(b, &parts); err != nil {
		return run, err
	}
	cfg, err := awsconf.Load(context.Background())
	if err != nil {
		return run, err
	}
	store := objects.New(cfg, &objects.Options{ResultsBucket: bench.FinishBucket})
	if what == "copy" {
		return bench.Copy(store, store, parts)
	}
	return bench.Finish(store, store, bench.PartList(parts))
}

// sizeOf is the bytes of all files in a folder.
func sizeOf(folder string) (n int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}
