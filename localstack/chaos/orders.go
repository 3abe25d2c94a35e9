package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/sfn"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"holdfast/internal/access"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// order is one request for a batch, in the form of every door.
type order struct {
	*run            // the batch that it must be
	name     string // correlation id
	object   bridge.Object
	uploaded string // the input's file, where it isn't an object that was put
	metadata map[string]string
}

// window is every order's.
const window = "24h"

// principal is who submits, by whichever door.
const principal = "somebody@example.com"

// open switches the S3 door on for a tenant.
func (c *client) open(ctx context.Context) error {
	now := time.Now()
	_, err := access.ChangeTenant(ctx, c.table.Tenants, c.tenant, true, now, func(t *access.Tenant) error {
		t.EnableDrop(principal, endpoint, window, now)
		return nil
	})
	return err
}

// drop puts an input at the S3 door, which is an order's first delivery: S3 tells of
// it.
func (c *client) drop(ctx context.Context, name string, in input) (*order, error) {
	data := in.file()
	key := "in/" + c.tenant + "/" + name
	began := time.Now()
	put, err := s3.NewFromConfig(c.cfg, func(o *s3.Options) { o.UsePathStyle = true }).PutObject(ctx, &s3.PutObjectInput{
		Bucket: &c.inputs, Key: &key, Body: bytes.NewReader(data),
	})
	if err != nil {
		return nil, err
	}
	o := bridge.Object{Bucket: c.inputs, Key: key, Version: aws.ToString(put.VersionId), ETag: aws.ToString(put.ETag), Bytes: int64(len(data))}
	id := o.CorrelationID()
	return &order{run: &run{client: c, in: in, id: bridge.BatchID(c.tenant, id), begun: began}, name: id, object: o}, nil
}

// order is one for an uploaded input, of which nobody has heard yet.
func (c *client) order(ctx context.Context, name string, in input) (*order, error) {
	file, err := c.upload(ctx, in)
	if err != nil {
		return nil, err
	}
	return &order{run: &run{client: c, in: in, id: bridge.BatchID(c.tenant, name), begun: time.Now()}, name: name, uploaded: file}, nil
}

// row is what the table knows of the order.
func (o *order) row(ctx context.Context) (bridge.Row, error) {
	return o.table.Bridge.Row(ctx, o.tenant, bridge.Key{Tenant: o.tenant, CorrelationID: o.name}.Name())
}

// event is what EventBridge says of the order's object, after a sample: AWS's, with
// its version, or the local one's, without.
func (o *order) event(version bool) (string, error) {
	sample := "events/ingest-s3-local.json"
	if version {
		sample = "events/ingest-s3.json"
	}
	var queued struct{ Records [1]struct{ Body string } }
	if err := readJSON(sample, &queued); err != nil {
		return "", err
	}
	var e struct {
		Source     string `json:"source"`
		DetailType string `json:"detail-type"`
		Time       string `json:"time"`
		Detail     struct {
			Bucket map[string]any `json:"bucket"`
			Object map[string]any `json:"object"`
		} `json:"detail"`
	}
	if err := json.Unmarshal([]byte(queued.Records[0].Body), &e); err != nil {
		return "", fmt.Errorf("%s: %w", sample, err)
	}
	e.Time = o.begun.UTC().Format(time.RFC3339)
	e.Detail.Bucket["name"] = o.object.Bucket
	at := e.Detail.Object
	at["key"], at["size"], at["etag"] = o.object.Key, o.object.Bytes, strings.Trim(o.object.ETag, `"`)
	if _, names := at["version-id"]; names {
		at["version-id"] = o.object.Version
	}
	return text(e), nil
}

// message is another system's.
func (o *order) message() string {
	in := map[string]string{"file_id": o.uploaded}
	if o.uploaded == "" {
		in = map[string]string{"bucket": o.object.Bucket, "key": o.object.Key, "version": o.object.Version}
	}
	return text(map[string]any{
		"v": 1, "correlation_id": o.name, "tenant": o.tenant, "principal": principal, "input": in,
		"endpoint": endpoint, "completion_window": window, "metadata": o.metadata,
	})
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // of strings and numbers
	}
	return string(b)
}

// send puts messages on the ingest queue.
func (s *stack) send(ctx context.Context, bodies ...string) error {
	queue := sqs.NewFromConfig(s.cfg)
	for len(bodies) > 0 {
		in := &sqs.SendMessageBatchInput{QueueUrl: &s.ingest}
		for ; len(bodies) > 0 && len(in.Entries) < 10; bodies = bodies[1:] {
			in.Entries = append(in.Entries, types.SendMessageBatchRequestEntry{Id: aws.String(fmt.Sprint(len(in.Entries))), MessageBody: &bodies[0]})
		}
		out, err := queue.SendMessageBatch(ctx, in)
		if err != nil || len(out.Failed) > 0 {
			return fmt.Errorf("send %d messages: %w, %d failed", len(in.Entries), err, len(out.Failed))
		}
	}
	return nil
}

// waiting is how many messages the ingest queue holds, hidden ones too.
func (s *stack) waiting(ctx context.Context) (n int, err error) {
	out, err := sqs.NewFromConfig(s.cfg).GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: &s.ingest, AttributeNames: []types.QueueAttributeName{"ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"},
	})
	if err != nil {
		return 0, err
	}
	for _, v := range out.Attributes {
		var one int
		if _, err := fmt.Sscan(v, &one); err != nil {
			return 0, err
		}
		n += one
	}
	return n, nil
}

// post is one create over HTTP. id is that of a 200; again: the answer says, or the
// lack of one, that the same may succeed later.
func (o *order) post(ctx context.Context) (id string, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, "POST", o.api+"/v1/batches", bytes.NewReader([]byte(text(map[string]string{
		"input_file_id": o.file(), "endpoint": endpoint, "completion_window": window,
	}))))
	if err != nil {
		return "", false, err
	}
	req.Header.Set("Authorization", "Bearer "+o.key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", o.name)
	status, b, err := o.read(req)
	if err != nil {
		// Before the S3 door has seen the object, no file is known by its id.
		early := status == http.StatusBadRequest && bytes.Contains(b, []byte(`"input_file_id"`))
		return "", status == 0 || status >= 500 || status == http.StatusConflict || early, err
	}
	var got openai.Batch
	err = json.Unmarshal(b, &got)
	return got.ID, false, err
}

// file is the input's id: its own where it was uploaded.
func (o *order) file() string {
	if o.uploaded != "" {
		return o.uploaded
	}
	return o.object.FileID(o.tenant)
}

// executions are the names of those that were started for a tenant, not to finish
// only. AWS keeps no index of that, so each one's input is looked at.
func (s *stack) executions(ctx context.Context, tenant string, since time.Time) (names []string, err error) {
	flow := sfn.NewFromConfig(s.cfg)
	pages := sfn.NewListExecutionsPaginator(flow, &sfn.ListExecutionsInput{StateMachineArn: &s.machine})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range page.Executions {
			if e.StartDate.Before(since.Add(-2 * time.Second)) {
				continue
			}
			one, err := flow.DescribeExecution(ctx, &sfn.DescribeExecutionInput{ExecutionArn: e.ExecutionArn})
			if err != nil {
				return nil, err
			}
			var of struct {
				Tenant string
				Finish bool
			}
			if err := json.Unmarshal([]byte(aws.ToString(one.Input)), &of); err != nil {
				return nil, err
			}
			if of.Tenant == tenant && !of.Finish {
				names = append(names, aws.ToString(e.Name))
			}
		}
	}
	return names, nil
}

// batches are the ids of a tenant's batches.
func (c *client) batches(ctx context.Context) (ids []string, err error) {
	var list openai.List[openai.Batch]
	err = c.call(ctx, "GET", "/v1/batches?"+url.Values{"limit": {"100"}}.Encode(), "", nil, &list)
	for _, b := range list.Data {
		ids = append(ids, b.ID)
	}
	return ids, err
}
