package main

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// starts measures every built function: the size of its zip as the CDK would
// upload it, and the time from the process's start to its first poll of the
// Lambda runtime's API.
func starts(folder string) ([]figure, error) {
	if folder == "" {
		return nil, errors.New("-functions is not set; run it through `make bench`")
	}
	bootstraps, err := filepath.Glob(filepath.Join(folder, "*", "bootstrap"))
	if err != nil {
		return nil, err
	}
	if len(bootstraps) == 0 {
		return nil, fmt.Errorf("no built function in %s", folder)
	}
	var out []figure
	for _, b := range bootstraps {
		name := filepath.Base(filepath.Dir(b))
		size, err := zipped(b)
		if err != nil {
			return nil, err
		}
		out = append(out, atMost(name+": zip", float64(size)/1e6, 6, "MB"))
		took, err := firstPoll(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, atMost(name+": start to first poll, median of 11", float64(took)/float64(time.Millisecond), 25, "ms"))
	}
	return out, nil
}

func zipped(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestCompression) })
	w, err := z.Create("bootstrap")
	if err == nil {
		_, err = io.Copy(w, f)
	}
	if err == nil {
		err = z.Close()
	}
	return b.Len(), err
}

// firstPoll starts the function eleven times (once more to warm the disk's
// cache) before a runtime API that only notes the first poll.
func firstPoll(path string) (time.Duration, error) {
	var took []time.Duration
	for i := range 12 {
		d, err := onePoll(path)
		if err != nil {
			return 0, err
		}
		if i > 0 {
			took = append(took, d)
		}
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}

func onePoll(path string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	polled := make(chan time.Time, 1)
	refused := make(chan string, 1)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/invocation/next") {
			select {
			case polled <- time.Now():
			default:
			}
			<-r.Context().Done()
			return
		}
		b, _ := io.ReadAll(io.LimitReader(r.Body, 2000))
		select {
		case refused <- string(b):
		default:
		}
	})}
	go srv.Serve(l)
	defer srv.Close()

	cmd := exec.CommandContext(ctx, path)
	cmd.Env = append(os.Environ(), functionEnv(l.Addr().String())...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() { cancel(); <-ended }()
	select {
	case at := <-polled:
		return at.Sub(begun), nil
	case why := <-refused:
		return 0, fmt.Errorf("it refused to start: %s", why)
	case err := <-ended:
		ended <- err
		return 0, fmt.Errorf("it ended without a poll: %v: %.500s", err, said.String())
	}
}

// functionEnv is what Lambda and the stack would set.
func functionEnv(api string) []string {
	return []string{
		"AWS_LAMBDA_RUNTIME_API=" + api, "AWS_LAMBDA_FUNCTION_NAME=bench", "AWS_LAMBDA_FUNCTION_MEMORY_SIZE=512",
		"AWS_REGION=us-east-1", "AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=bench", "AWS_ENDPOINT_URL=",
		"HOLDFAST_TABLE=bench", "HOLDFAST_INPUTS_BUCKET=bench-inputs", "HOLDFAST_RESULTS_BUCKET=bench-results",
		"HOLDFAST_WORK_QUEUE_URL=https://sqs.us-east-1.amazonaws.com/123456789012/bench",
		"HOLDFAST_DEAD_LETTERS_URL=https://sqs.us-east-1.amazonaws.com/123456789012/letters",
		"HOLDFAST_INGEST_QUEUE_URL=https://sqs.us-east-1.amazonaws.com/123456789012/ingest",
		"HOLDFAST_INGEST_DEAD_LETTERS_URL=https://sqs.us-east-1.amazonaws.com/123456789012/refused",
		"HOLDFAST_INGEST_QUEUE_URL=https://sqs.us-east-1.amazonaws.com/123456789012/ingest",
		"HOLDFAST_INGEST_DEAD_LETTERS_URL=https://sqs.us-east-1.amazonaws.com/123456789012/ingest-letters",
		"HOLDFAST_STATE_MACHINE_ARN=arn:aws:states:us-east-1:123456789012:stateMachine:bench",
		"HOLDFAST_UPSTREAM_URL=http://127.0.0.1:9", "HOLDFAST_UPSTREAM_ALLOW=127.0.0.1",
	}
}
