package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/bench"
)

// apiCalls measures what the API itself costs a call. Nobody set bounds; these
// are an order of magnitude above what it takes, so that only a mistake (a copy
// of everything, a query a line) goes through them.
func apiCalls() ([]figure, error) {
	costs, err := bench.APICalls(2_000)
	if err != nil {
		return nil, err
	}
	for range 2 { // best of three: what the code can do, not what else the machine was doing
		again, err := bench.APICalls(2_000)
		if err != nil {
			return nil, err
		}
		for i, c := range again {
			costs[i].P50, costs[i].P99 = min(costs[i].P50, c.P50), min(costs[i].P99, c.P99)
			costs[i].NothingP50, costs[i].NothingP99 = min(costs[i].NothingP50, c.NothingP50), min(costs[i].NothingP99, c.NothingP99)
		}
	}
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	var out []figure
	for _, c := range costs {
		out = append(out,
			atMost("API, "+c.Name+": p50", micros(c.P50), 1_000, "µs"),
			atMost("API, "+c.Name+": p99", micros(c.P99), 5_000, "µs"),
			unbounded("  a handler that does nothing: p50", micros(c.NothingP50), "µs"),
			unbounded("  a handler that does nothing: p99", micros(c.NothingP99), "µs"),
			unbounded("  times a handler that does nothing, p50", float64(c.P50)/float64(max(c.NothingP50, 1)), ""),
		)
	}
	return out, nil
}

// apiMemory measures the api function's peak of resident memory while it takes
// uploads of the largest size, one after the other, as Lambda would hand them.
func apiMemory(functions string) ([]figure, error) {
	const uploads = 30
	peak, err := peakOfUploads(filepath.Join(functions, "api", "bootstrap"), uploads, 4<<20)
	if err != nil {
		return nil, err
	}
	return []figure{atMost(fmt.Sprintf("api: peak RSS, %d uploads of 4 MiB", uploads), float64(peak)/(1<<20), 128, "MiB")}, nil
}

func peakOfUploads(bootstrap string, uploads, size int) (peakBytes int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	event, err := uploadEvent(size)
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	srv := &http.Server{Handler: &lambdaAndAWS{event: event, left: uploads, done: done}}
	go srv.Serve(l)
	defer srv.Close()

	cmd := exec.CommandContext(ctx, bootstrap)
	cmd.Env = append(append(os.Environ(), functionEnv(l.Addr().String())...), "AWS_ENDPOINT_URL=http://"+l.Addr().String(), "AWS_ENDPOINT_URL_S3=http://"+l.Addr().String())
	cmd.Stdout, cmd.Stderr = io.Discard, os.Stderr
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-done:
	case early := <-ended:
		return 0, fmt.Errorf("the function ended: %v", early)
	}
	peak, known := highWater(cmd.Process.Pid)
	cancel()
	<-ended
	if !known {
		usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		if !ok {
			return 0, errors.New("this system doesn't tell a process's memory")
		}
		peak = int64(usage.Maxrss) // bytes, on a Mac
	}
	return peak, err
}

// highWater is a living process's peak resident set, where /proc tells it. (The
// usage that Linux gives of a child also counts what its parent had.)
func highWater(pid int) (bytes int64, known bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	n, err := fmt.Sscan(rest, &bytes)
	return bytes << 10, n == 1 && err == nil
}

const benchSecret = "hf_abcdefghabcdefghabcdefghabcdefgh"

// uploadEvent is API Gateway's event for an upload.
func uploadEvent(size int) ([]byte, error) {
	form, contentType, err := bench.UploadForm(size)
	if err != nil {
		return nil, err
	}
	return json.Marshal(map[string]any{
		"version": "2.0", "rawPath": "/v1/files", "isBase64Encoded": true, "body": base64.StdEncoding.EncodeToString(form),
		"headers":        map[string]string{"authorization": "Bearer " + benchSecret, "content-type": contentType},
		"requestContext": map[string]any{"http": map[string]string{"method": "POST", "path": "/v1/files"}, "requestId": "bench", "stage": "$default"},
	})
}

// lambdaAndAWS is the runtime's API, which hands out the event some times, and as
// much of DynamoDB and S3 as an upload needs.
type lambdaAndAWS struct {
	event []byte
	left  int
	done  chan error // one answer: nil when all uploads were taken
}

func (l *lambdaAndAWS) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch target := r.Header.Get("X-Amz-Target"); {
	case strings.HasSuffix(r.URL.Path, "/invocation/next"):
		if l.left == 0 {
			l.done <- nil
			<-r.Context().Done()
			return
		}
		l.left--
		h := w.Header()
		h.Set("Lambda-Runtime-Aws-Request-Id", "bench")
		h.Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
		h.Set("Lambda-Runtime-Invoked-Function-Arn", "arn:aws:lambda:us-east-1:123456789012:function:bench")
		h.Set("Content-Type", "application/json")
		_, _ = w.Write(l.event)
	case strings.HasSuffix(r.URL.Path, "/response"):
		var answer struct {
			StatusCode int
			Body       string
		}
		if err := json.NewDecoder(r.Body).Decode(&answer); err != nil || answer.StatusCode != http.StatusOK {
			l.fail(fmt.Errorf("an upload is answered %d: %.300s (%v)", answer.StatusCode, answer.Body, err))
		}
		w.WriteHeader(http.StatusAccepted)
	case strings.HasSuffix(target, ".GetItem"):
		text := func(s string) map[string]string { return map[string]string{"S": s} }
		l.dynamo(w, map[string]any{"Item": map[string]any{
			"pk": text("KEY#" + access.HashSecret(benchSecret)), "sk": text("KEY"), "v": map[string]string{"N": "1"}, "hash": text(access.HashSecret(benchSecret)),
			"tenant": text("bench"), "principal": text("bench"), "name": text("bench"), "scopes": map[string]any{"L": []any{text("submit")}},
		}})
	case target != "":
		l.dynamo(w, map[string]any{})
	case r.Method == http.MethodPut:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"bench"`)
	default:
		b, _ := io.ReadAll(io.LimitReader(r.Body, 500))
		l.fail(fmt.Errorf("%s %s: %s", r.Method, r.URL.Path, b))
	}
}

// dynamo answers with the checksum that its client looks for.
func (l *lambdaAndAWS) dynamo(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		l.fail(err)
	}
	w.Header().Set("X-Amz-Crc32", fmt.Sprint(crc32.ChecksumIEEE(b)))
	_, _ = w.Write(b)
}

func (l *lambdaAndAWS) fail(err error) {
	select {
	case l.done <- err:
	default:
	}
}
