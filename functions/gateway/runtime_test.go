package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
)

// envStep makes this test's program the function: its value is where the function
// asks whether to go on.
const envStep = "HOLDFAST_TEST_STEP"

// TestMain is the function's main where the environment says so: over Lambda's own
// client, as the deployed function runs.
func TestMain(m *testing.M) {
	step := os.Getenv(envStep)
	if step == "" {
		os.Exit(m.Run())
	}
	lambda.Start(handlerOf(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "one\n")
		resp, err := http.Get(step)
		if err != nil {
			panic(err)
		}
		resp.Body.Close()
		_, _ = io.WriteString(w, "two\n")
		if r.URL.Path == "/torn" {
			panic(http.ErrAbortHandler)
		}
	}).handle)
}

// posted is an answer as Lambda got it.
type posted struct {
	kind, prelude string
	lines         []string
	trailer       http.Header
}

// TestRuntime runs the function as a process against Lambda's runtime API: the first
// line of an answer arrives while the function waits to be told to write the second,
// and one that breaks off ends with the error that makes Lambda cut the connection.
func TestRuntime(t *testing.T) {
	events, answers, first := make(chan string, 2), make(chan posted, 2), make(chan struct{})
	api := http.NewServeMux()
	api.HandleFunc("GET /2018-06-01/runtime/invocation/next", func(w http.ResponseWriter, r *http.Request) {
		select {
		case path := <-events:
			ev := sample(t, "gateway-chat")
			ev.RawPath = path
			w.Header().Set("Lambda-Runtime-Aws-Request-Id", "1")
			w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
			_ = json.NewEncoder(w).Encode(ev)
		case <-r.Context().Done():
		}
	})
	api.HandleFunc("POST /2018-06-01/runtime/invocation/1/response", func(w http.ResponseWriter, r *http.Request) {
		body := bufio.NewReader(r.Body)
		a := posted{kind: r.Header.Get("Content-Type")}
		for zeros := 0; zeros < 8; {
			c, err := body.ReadByte()
			if err != nil {
				t.Errorf("prelude: %v", err)
				return
			}
			if c == 0 {
				zeros++
			} else {
				a.prelude += string(c)
			}
		}
		for {
			line, err := body.ReadString('\n')
			if err != nil {
				break
			}
			a.lines = append(a.lines, line)
			if len(a.lines) == 1 {
				first <- struct{}{}
			}
		}
		a.trailer = r.Trailer
		w.WriteHeader(http.StatusAccepted)
		answers <- a
	})
	api.HandleFunc("GET /step", func(http.ResponseWriter, *http.Request) { <-first })
	server := httptest.NewServer(api)
	defer server.Close()

	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	function := exec.CommandContext(ctx, self)
	function.Env = append(os.Environ(), envStep+"="+server.URL+"/step", "AWS_LAMBDA_RUNTIME_API="+strings.TrimPrefix(server.URL, "http://"))
	function.Stdout, function.Stderr = os.Stderr, os.Stderr
	if err := function.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel() // kills it
		_ = function.Wait()
	}()
	for _, path := range []string{"/whole", "/torn"} {
		events <- path
		select {
		case a := <-answers:
			const errorType = "Lambda-Runtime-Function-Error-Type"
			if a.kind != "application/vnd.awslambda.http-integration-response" || !strings.Contains(a.prelude, `"statusCode":200`) ||
				!strings.Contains(a.prelude, "text/event-stream") || strings.Join(a.lines, "") != "one\ntwo\n" {
				t.Errorf("%s: %+v", path, a)
			}
			if torn := a.trailer.Get(errorType) != ""; torn != (path == "/torn") {
				t.Errorf("%s: trailer %v", path, a.trailer)
			}
		case <-ctx.Done():
			t.Fatalf("%s: no answer", path)
		}
	}
}
