package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/openai"
)

// stack is the deployed one, as the environment names it.
type stack struct {
	url, key, model string
	cfg             aws.Config
	http            *http.Client
}

func connect(ctx context.Context) (*stack, error) {
	for _, name := range []string{"HOLDFAST_URL", "HOLDFAST_API_KEY", "MODEL_URL", "AWS_ENDPOINT_URL", "HOLDFAST_TABLE", "HOLDFAST_WORK_QUEUE_URL"} {
		if os.Getenv(name) == "" {
			return nil, fmt.Errorf("%s is not set: run it through make upgrade", name)
		}
	}
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	client := &http.Client{Timeout: time.Minute, CheckRedirect: func(req *http.Request, _ []*http.Request) error {
		req.Header.Del("Authorization") // the store's, which has the same address here, is in the URL
		return nil
	}}
	return &stack{os.Getenv("HOLDFAST_URL"), os.Getenv("HOLDFAST_API_KEY"), os.Getenv("MODEL_URL"), cfg, client}, nil
}

// begun is a batch and what it was begun with.
type begun struct {
	id     string
	bodies []string // by line
}

func customID(i int) string { return fmt.Sprintf("line-%06d", i) }

// begin uploads an input and creates a batch of it.
func (s *stack) begin(ctx context.Context, lines int, model string) (begun, error) {
	var b begun
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "upgrade.jsonl")
	if err != nil {
		return b, err
	}
	for i := range lines {
		body := fmt.Sprintf(`{"model":%q, "n":%d.0,"x":"é\u0041"}`, model, i)
		b.bodies = append(b.bodies, body)
		fmt.Fprintf(part, `{"custom_id":%q,"method":"POST","url":"/v1/chat/completions","body":%s}`+"\n", customID(i), body)
	}
	if err := w.WriteField("purpose", "batch"); err != nil {
		return b, err
	}
	if err := w.Close(); err != nil {
		return b, err
	}
	var file openai.File
	if err := s.call(ctx, "POST", "/v1/files", w.FormDataContentType(), form.Bytes(), &file); err != nil {
		return b, fmt.Errorf("upload: %w", err)
	}
	var created openai.Batch
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, file.ID)
	if err := s.call(ctx, "POST", "/v1/batches", "application/json", []byte(body), &created); err != nil {
		return b, fmt.Errorf("create: %w", err)
	}
	b.id = created.ID
	return b, nil
}

// call makes one call of the API. What the deploy of the API itself gets in the
// way of is tried again for a few seconds.
func (s *stack) call(ctx context.Context, method, path, kind string, body []byte, into any) error {
	var last error
	for range 10 {
		status, reply, err := s.try(ctx, method, path, kind, body)
		switch {
		case err == nil && status == http.StatusOK:
			return json.Unmarshal(reply, into)
		case err == nil && status < 500:
			return fmt.Errorf("%s %s: status %d: %.300s", method, path, status, reply)
		case err == nil:
			err = fmt.Errorf("status %d: %.300s", status, reply)
		}
		last = fmt.Errorf("%s %s: %w", method, path, err)
		if !pause(ctx, 500*time.Millisecond) {
			break
		}
	}
	return last
}

func (s *stack) try(ctx context.Context, method, path, kind string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+s.key)
	if kind != "" {
		req.Header.Set("Content-Type", kind)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	return resp.StatusCode, reply, err
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// state is a batch as the API shows it.
type state struct{ openai.Batch }

func (s state) over() bool {
	switch s.Status {
	case openai.StatusCompleted, openai.StatusFailed, openai.StatusExpired, openai.StatusCancelled:
		return true
	}
	return false
}

func (s *stack) progress(ctx context.Context, b begun) (now state, err error) {
	err = s.call(ctx, "GET", "/v1/batches/"+b.id, "", nil, &now.Batch)
	return now, err
}

// patience is how long a batch may stand still.
const patience = 2 * time.Minute

// until waits for so many lines of a batch to be done, and calls also meanwhile.
func (s *stack) until(ctx context.Context, b begun, lines int, also ...func()) (int, error) {
	best, since := -1, time.Now()
	for {
		now, err := s.progress(ctx, b)
		if err != nil {
			return 0, err
		}
		done := now.RequestCounts.Completed + now.RequestCounts.Failed
		switch {
		case now.over() && lines <= len(b.bodies):
			return done, fmt.Errorf("batch %s is %s with %d lines done: the upgrade came too late", b.id, now.Status, done)
		case now.over(), done >= lines:
			return done, nil
		case done > best:
			best, since = done, time.Now()
		case time.Since(since) > patience:
			return done, fmt.Errorf("batch %s is %s and stands still at %d of %d lines", b.id, now.Status, done, len(b.bodies))
		}
		for _, f := range also {
			f()
		}
		if !pause(ctx, 200*time.Millisecond) {
			return done, ctx.Err()
		}
	}
}

// content downloads a file, from wherever the API says.
func (s *stack) content(ctx context.Context, file string) ([]byte, error) {
	status, b, err := s.try(ctx, "GET", "/v1/files/"+file+"/content", "", nil)
	if err != nil || status != http.StatusOK {
		return nil, fmt.Errorf("content of %s: status %d: %w: %.300s", file, status, err, b)
	}
	return b, nil
}

// account is what the model counted for a batch, by line.
type account struct {
	Requests int `json:"requests"`
	Lines    map[string]struct {
		Tries int    `json:"tries"`
		Sum   string `json:"sha256"`
	} `json:"lines"`
}

func (s *stack) account(ctx context.Context, batch string) (a account, err error) {
	req, err := http.NewRequestWithContext(ctx, "GET", strings.TrimRight(s.model, "/")+"/sim/requests?batch="+batch, nil)
	if err != nil {
		return a, err
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	return a, json.NewDecoder(resp.Body).Decode(&a)
}

func sum(body string) string {
	h := sha256.Sum256([]byte(body))
	return hex.EncodeToString(h[:])
}
