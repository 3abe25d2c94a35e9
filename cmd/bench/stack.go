package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"holdfast/internal/openai"
)

// stack is a deployed Holdfast and the simulated model behind it, as the env
// file of a local stack names them.
type stack struct {
	api, key, model string
	http            *http.Client
}

// stackFromEnv reads the variables of the env file.
func stackFromEnv() (*stack, error) {
	s := &stack{http: &http.Client{Timeout: time.Minute}}
	for name, to := range map[string]*string{"HOLDFAST_URL": &s.api, "HOLDFAST_API_KEY": &s.key, "MODEL_URL": &s.model} {
		if *to = strings.TrimRight(os.Getenv(name), "/"); *to == "" {
			return nil, fmt.Errorf("%s is not set: load runs need a deployed stack; run them through `make load`", name)
		}
	}
	return s, nil
}

// call makes one request and reads a JSON answer of status 200 into v.
func (s *stack) call(ctx context.Context, method, address, contentType string, body []byte, v any) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	if strings.HasPrefix(address, s.api) {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: status %d: %.300s", method, req.URL.Path, resp.StatusCode, answer)
	}
	return json.Unmarshal(answer, v)
}

// loadEndpoint is what every line calls: its requests are the shortest.
const loadEndpoint = "/v1/completions"

// loadBody is line i's request.
func loadBody(model string, i int) string { return fmt.Sprintf(`{"model":%q,"prompt":"%d"}`, model, i) }

// loadID is line i's custom_id.
func loadID(i int) string { return fmt.Sprintf("line-%06d", i) }

// loadInput is a file of lines for a model.
func loadInput(model string, lines int) []byte {
	var b bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&b, `{"custom_id":%q,"method":"POST","url":%q,"body":%s}`+"\n", loadID(i), loadEndpoint, loadBody(model, i))
	}
	return b.Bytes()
}

// upload sends an input file, in one call.
func (s *stack) upload(ctx context.Context, data []byte) (file string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	part, err := w.CreateFormFile("file", "load.jsonl")
	if err == nil {
		_, err = part.Write(data)
	}
	if err == nil {
		err = w.WriteField("purpose", openai.PurposeBatch)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return "", err
	}
	var f openai.File
	if err := s.call(ctx, "POST", s.api+"/v1/files", w.FormDataContentType(), b.Bytes(), &f); err != nil {
		return "", fmt.Errorf("upload of %d bytes: %w", len(data), err)
	}
	return f.ID, nil
}

// create starts a batch on an uploaded file.
func (s *stack) create(ctx context.Context, file string) (batch string, err error) {
	body, err := json.Marshal(map[string]string{"input_file_id": file, "endpoint": loadEndpoint, "completion_window": "24h"})
	if err != nil {
		return "", err
	}
	var b openai.Batch
	if err := s.call(ctx, "POST", s.api+"/v1/batches", "application/json", body, &b); err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	return b.ID, nil
}

// modelStats is what the simulated model tells of a batch (cmd/modelsim).
type modelStats struct {
	Requests    int       `json:"requests"`
	InFlight    int       `json:"in_flight"`
	MaxInFlight int       `json:"max_in_flight"`
	Busy        float64   `json:"busy_seconds"`
	First       time.Time `json:"first_request_at"`
	Last        time.Time `json:"last_reply_at"`
}

// stats asks the model, which costs the stack nothing.
func (s *stack) stats(ctx context.Context, batch string) (m modelStats, err error) {
	err = s.call(ctx, "GET", s.model+"/sim/stats?batch="+url.QueryEscape(batch), "", nil, &m)
	return m, err
}

// every calls done each tick until it says yes.
func every(ctx context.Context, tick time.Duration, done func() (bool, error)) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		if yes, err := done(); yes || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// replied waits until the model has answered all of the lines.
func (s *stack) replied(ctx context.Context, batch string, lines int, tick time.Duration) (m modelStats, err error) {
	err = every(ctx, tick, func() (bool, error) {
		now, err := s.stats(ctx, batch)
		if err != nil {
			return false, err
		}
		m = now
		return m.Requests >= lines && m.InFlight == 0, nil
	})
	if err != nil {
		err = fmt.Errorf("the model has answered %d requests of %d lines: %w", m.Requests-m.InFlight, lines, err)
	}
	return m, err
}

// terminal waits until the API says that a batch is over.
func (s *stack) terminal(ctx context.Context, batch string, tick time.Duration) (b openai.Batch, err error) {
	err = every(ctx, tick, func() (bool, error) {
		if err := s.call(ctx, "GET", s.api+"/v1/batches/"+batch, "", nil, &b); err != nil {
			return false, err
		}
		switch b.Status {
		case openai.StatusCompleted, openai.StatusFailed, openai.StatusExpired, openai.StatusCancelled:
			return true, nil
		}
		return false, nil
	})
	if err != nil {
		err = fmt.Errorf("batch is %s, %d of %d lines over: %w", b.Status, b.RequestCounts.Completed+b.RequestCounts.Failed, b.RequestCounts.Total, err)
	}
	return b, err
}

// strays holds a finished batch to its promise: each line's result once, in
// input order, with the reply to its own request. It returns how many result
// lines are missing, too many, out of place or another line's.
func (s *stack) strays(ctx context.Context, b openai.Batch, model string, lines int) (int, error) {
	if b.Status != openai.StatusCompleted || b.OutputFileID == nil {
		return lines, nil
	}
	req, err := http.NewRequestWithContext(ctx, "GET", s.api+"/v1/files/"+*b.OutputFileID+"/content", nil)
	if err != nil {
		return 0, err
	}
	// The client doesn't follow the redirect: the emulator's store is the same host as
	// its API, so that the key would go along, and a store refuses what is signed twice.
	req.Header.Set("Authorization", "Bearer "+s.key)
	direct := *s.http
	direct.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := direct.Do(req)
	if err != nil {
		return 0, err
	}
	resp.Body.Close()
	req, err = http.NewRequestWithContext(ctx, "GET", resp.Header.Get("Location"), nil)
	if err != nil {
		return 0, fmt.Errorf("content of %s: status %d: %w", *b.OutputFileID, resp.StatusCode, err)
	}
	resp, err = s.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("download: status %d", resp.StatusCode)
	}
	return strayLines(resp.Body, model, lines)
}

// strayLines is strays of an output file.
func strayLines(output io.Reader, model string, lines int) (int, error) {
	in, wrong, seen := bufio.NewReader(output), 0, 0
	for {
		raw, err := in.ReadBytes('\n')
		if len(raw) > 0 {
			if seen >= lines || !isResult(raw, model, seen) {
				wrong++
			}
			seen++
		}
		if errors.Is(err, io.EOF) {
			return wrong + max(lines-seen, 0), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// isResult reports whether raw is line i's result.
func isResult(raw []byte, model string, i int) bool {
	var r struct {
		CustomID string `json:"custom_id"`
		Response struct {
			StatusCode int             `json:"status_code"`
			Body       json.RawMessage `json:"body"`
		} `json:"response"`
	}
	sum := sha256.Sum256([]byte(loadBody(model, i)))
	return json.Unmarshal(raw, &r) == nil && r.CustomID == loadID(i) && r.Response.StatusCode == http.StatusOK &&
		bytes.Contains(r.Response.Body, []byte("You sent "+hex.EncodeToString(sum[:])))
}
