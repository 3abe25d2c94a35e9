package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"time"

	"holdfast/internal/bench"
)

// workMemory measures a worker's memory, each case in a process of its own and
// with the model server in this one.
func workMemory() ([]figure, error) {
	var all []figure
	for _, c := range []struct {
		name            string
		k, lines, reply int
		bound           float64 // MiB
	}{
		{"K=32, replies of 4 KB", 32, 10_000, 4 << 10, 128},
		{"K=32, replies of 1 MiB", 32, 600, 1 << 20, 256},
		{"K=128, replies of 4 KB", 128, 10_000, 4 << 10, 128},
		{"K=128, replies of 1 MiB", 128, 600, 1 << 20, 256},
	} {
		p, err := peakOfWork(c.k, c.lines, c.reply)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("work, %s, %d lines (%.0f a second): peak memory", c.name, c.lines, float64(c.lines)/p.Seconds)
		all = append(all, atMost(name, float64(p.Peak)/(1<<20), c.bound, "MiB"))
	}
	return all, nil
}

// workPeakChild is the first argument of a process that runs lines: as many slots,
// as many lines, and the model's URL come after it. It prints a workPeak.
const workPeakChild = "work-peak"

type workPeak struct {
	Peak    int64   `json:"peak"` // bytes
	Seconds float64 `json:"seconds"`
}

func runWorkPeak(k, lines, url string) error {
	slots, err := strconv.Atoi(k)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(lines)
	if err != nil {
		return err
	}
	begun := time.Now()
	peak, err := bench.WorkerPeak(url, slots, n)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(workPeak{peak, time.Since(begun).Seconds()})
}

// peakOfWork serves a model that answers after 20 ms with a reply of so many bytes.
func peakOfWork(k, lines, reply int) (p workPeak, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return p, err
	}
	const head, tail = `{"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"`, `"}}],"usage":{"prompt_tokens":12,"completion_tokens":10,"total_tokens":22}}`
	body := append([]byte(head), bytes.Repeat([]byte("x"), reply-len(head)-len(tail))...)
	body = append(body, tail...)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		answer := time.NewTimer(20 * time.Millisecond)
		defer answer.Stop()
		select {
		case <-answer.C:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = w.Write(body)
	})}
	go srv.Serve(l)
	defer srv.Close()
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	cmd := exec.Command(self, workPeakChild, strconv.Itoa(k), strconv.Itoa(lines), "http://"+l.Addr().String())
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return p, fmt.Errorf("%d slots, replies of %d bytes: %w", k, reply, err)
	}
	return p, json.Unmarshal(out, &p)
}
