package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go/logging"

	"holdfast/internal/access"
	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
)

// stack is the deployed Holdfast, as its env file names it.
type stack struct {
	api, model, queue, machine, reaper string
	inputs, ingest, dead, ingester     string // bucket, queues and function of the other doors
	cfg                                aws.Config
	table                              *dynamo.Store
	http                               *http.Client
}

func stackFromEnv(ctx context.Context) (*stack, error) {
	s := &stack{http: &http.Client{Timeout: 35 * time.Second, // the API ends in 30
		CheckRedirect: func(req *http.Request, _ []*http.Request) error {
			req.Header.Del("Authorization") // a result's own address is signed, and has the same host here
			return nil
		}}}
	var table string
	for name, to := range map[string]*string{
		"HOLDFAST_URL": &s.api, "MODEL_URL": &s.model, "HOLDFAST_TABLE": &table, "HOLDFAST_WORK_QUEUE_URL": &s.queue,
		"HOLDFAST_STATE_MACHINE_ARN": &s.machine, "HOLDFAST_REAP_FUNCTION": &s.reaper,
		"HOLDFAST_INPUTS_BUCKET": &s.inputs, "HOLDFAST_INGEST_QUEUE_URL": &s.ingest, "HOLDFAST_INGEST_FUNCTION": &s.ingester,
		"HOLDFAST_INGEST_DEAD_LETTERS_URL": &s.dead,
	} {
		if *to = strings.TrimRight(os.Getenv(name), "/"); *to == "" {
			return nil, fmt.Errorf("%s is not set: run it through make chaos", name)
		}
	}
	var err error
	if s.cfg, err = awsconf.Load(ctx); err != nil {
		return nil, err
	}
	s.cfg.Logger = logging.Nop{} // it warns of connections that could not be used again
	s.table = dynamo.Open(s.cfg, table)
	return s, nil
}

// client is one tenant's access to the API.
type client struct {
	*stack
	tenant, key string
}

// tenant makes a tenant that nobody else is.
func (s *stack) tenant(ctx context.Context, name string) (*client, error) {
	now := time.Now()
	tenant := fmt.Sprintf("%s-%d", name, now.UnixMilli())
	key, secret, err := access.New(access.Key{
		Tenant: tenant, Principal: principal, Name: name, Scopes: []access.Scope{access.Submit, access.Read},
	}, now)
	if err != nil {
		return nil, err
	}
	if err := s.table.Keys.Put(ctx, key); err != nil {
		return nil, fmt.Errorf("key of %s: %w", tenant, err)
	}
	return &client{s, tenant, secret}, nil
}

// tries is how often a call is made that the API asks to make again.
const tries = 5

// get makes one call and returns the body of a 200. As the API asks its clients to,
// it calls again after a 5xx: everything here shares two processors.
func (c *client) get(ctx context.Context, method, path, contentType string, body []byte) ([]byte, error) {
	for n := 1; ; n++ {
		req, err := http.NewRequestWithContext(ctx, method, c.api+path, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+c.key)
		if contentType != "" {
			req.Header.Set("Content-Type", contentType)
		}
		status, b, err := c.read(req)
		// No answer at all is tried again only where that can't do a thing twice.
		again := status >= 500 || status == 0 && method == http.MethodGet
		if err == nil || !again || n == tries || !pause(ctx, time.Second) {
			return b, err
		}
	}
}

// read makes a request. Anything but a 200 is an error.
func (s *stack) read(req *http.Request) (status int, b []byte, err error) {
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: status %d: %.300s", req.Method, req.URL.Path, resp.StatusCode, b)
	}
	return resp.StatusCode, b, err
}

func (c *client) call(ctx context.Context, method, path, contentType string, body []byte, v any) error {
	b, err := c.get(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// upload sends an input and returns its file's id.
func (c *client) upload(ctx context.Context, in input) (string, error) {
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	part, err := w.CreateFormFile("file", "chaos.jsonl")
	if err == nil {
		_, err = part.Write(in.file())
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
	var file openai.File
	if err := c.call(ctx, "POST", "/v1/files", w.FormDataContentType(), form.Bytes(), &file); err != nil {
		return "", fmt.Errorf("upload: %w", err)
	}
	return file.ID, nil
}

// begin uploads an input and creates a batch of it.
func (c *client) begin(ctx context.Context, in input) (*run, error) {
	file, err := c.upload(ctx, in)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(map[string]string{"input_file_id": file, "endpoint": endpoint, "completion_window": window})
	if err != nil {
		return nil, err
	}
	var b openai.Batch
	if err := c.call(ctx, "POST", "/v1/batches", "application/json", body, &b); err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	return &run{client: c, in: in, id: b.ID, begun: time.Now()}, nil
}

// account is what the model counted for a batch.
type account struct {
	Requests int `json:"requests"`
	Lines    map[string]struct {
		Tries int `json:"tries"`
	} `json:"lines"`
}

func (s *stack) ask(ctx context.Context, path string, v any) error {
	req, err := http.NewRequestWithContext(ctx, "GET", s.model+path, nil)
	if err != nil {
		return err
	}
	_, b, err := s.read(req)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

func (s *stack) account(ctx context.Context, batch string) (a account, err error) {
	err = s.ask(ctx, "/sim/requests?batch="+batch, &a)
	return a, err
}

// flight is a request that the model has not answered yet.
type flight struct{ Batch, Line, From string }

// port is the client's; 0 when it can't be read.
func (f flight) port() int {
	_, port, _ := net.SplitHostPort(f.From)
	n, _ := strconv.Atoi(port)
	return n
}

func (f flight) key() lineKey {
	n, err := strconv.Atoi(f.Line)
	if err != nil {
		n = -1
	}
	return lineKey{f.Batch, n}
}

func (s *stack) flights(ctx context.Context) (all []flight, err error) {
	err = s.ask(ctx, "/sim/flying", &all)
	return all, err
}

// parts reads a batch's parts from the table.
func (c *client) parts(ctx context.Context, id string) (parts []batch.Part, err error) {
	for p, err := range c.table.Parts.All(ctx, c.tenant, id) {
		if err != nil {
			return nil, err
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// tally is what a round of the reaper answers, in the members that are shown.
type tally struct {
	Reaped   int `json:"reaped"`
	Resent   int `json:"resent"`
	Dead     int `json:"dead"`
	Sealed   int `json:"sealed"`
	Started  int `json:"started"`
	Finished int `json:"finished"`
	Failed   int `json:"failed"`
}

func (t *tally) add(o tally) {
	t.Reaped += o.Reaped
	t.Resent += o.Resent
	t.Dead += o.Dead
	t.Sealed += o.Sealed
	t.Started += o.Started
	t.Finished += o.Finished
	t.Failed += o.Failed
}

// tick invokes the reaper, as EventBridge does each minute.
func (s *stack) tick(ctx context.Context) (t tally, err error) {
	out, err := lambda.NewFromConfig(s.cfg).Invoke(ctx, &lambda.InvokeInput{
		FunctionName: &s.reaper, Payload: []byte(`{"source":"aws.events","detail-type":"Scheduled Event","detail":{}}`),
	})
	if err != nil {
		return t, fmt.Errorf("tick of the reaper: %w", err)
	}
	if out.FunctionError != nil {
		return t, fmt.Errorf("tick of the reaper: %s: %.300s", *out.FunctionError, out.Payload)
	}
	return t, json.Unmarshal(out.Payload, &t)
}

// purge empties the work queue.
func (s *stack) purge(ctx context.Context) error {
	_, err := sqs.NewFromConfig(s.cfg).PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: &s.queue})
	return err
}

// stop ends a batch's execution, as an operator would.
func (s *stack) stop(ctx context.Context, id string) error {
	arn := strings.Replace(s.machine, ":stateMachine:", ":execution:", 1) + ":" + id
	_, err := sfn.NewFromConfig(s.cfg).StopExecution(ctx, &sfn.StopExecutionInput{ExecutionArn: &arn, Cause: aws.String("chaos")})
	return err
}

// every calls do each tick until it says yes or fails.
func every(ctx context.Context, tick time.Duration, do func() (done bool, err error)) error {
	t := time.NewTicker(tick)
	defer t.Stop()
	for {
		if done, err := do(); done || err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause waits; it reports whether ctx goes on.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
