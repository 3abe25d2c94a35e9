package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/bridge"
	"holdfast/internal/openai"
)

// message is what another system sends (events/ingest-message.schema.json).
type message struct {
	V             int               `json:"v"`
	CorrelationID string            `json:"correlation_id"`
	Tenant        string            `json:"tenant"`
	Principal     string            `json:"principal"`
	Input         map[string]string `json:"input"`
	Endpoint      string            `json:"endpoint"`
	Window        string            `json:"completion_window,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

func (m message) String() string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // of strings
	}
	return string(b)
}

// robot is in whose name messages come.
const robot = "robot@example.com"

func (c *client) message(id string, input map[string]string) message {
	return message{V: 1, CorrelationID: id, Tenant: c.tenant, Principal: robot, Input: input, Endpoint: "/v1/chat/completions"}
}

// A message about a file, and one about an object, of a tenant who has no record and
// whose S3 door is shut; each comes twice.
func TestMessages(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	up := c.upload(t, "in.jsonl", lines(3, "/v1/chat/completions"))
	m := c.message("order/17", map[string]string{"file_id": up.ID})
	m.Window, m.Metadata = "1h", map[string]string{"order": "17"}
	send(t, m.String())
	send(t, m.String())
	b := c.appears(t, bridge.BatchID(c.tenant, "order/17"))
	if b.InputFileID != up.ID || b.CompletionWindow != "1h" || b.Metadata["order"] != "17" || b.Endpoint != m.Endpoint {
		t.Errorf("%+v", b)
	}
	o := c.put(t, "of a message.jsonl", lines(2, "/v1/chat/completions"), nil)
	c.put(t, "of a message.jsonl", lines(1, "/v1/chat/completions"), nil) // the message names the version before
	m = c.message("order/18", map[string]string{"bucket": o.Bucket, "key": o.Key, "version": o.Version})
	send(t, m.String())
	send(t, m.String())
	second := c.appears(t, bridge.BatchID(c.tenant, "order/18"))
	if second.InputFileID != o.FileID(c.tenant) || second.CompletionWindow != "24h" {
		t.Errorf("%+v", second)
	}
	c.finished(t, b.ID, robot, 3)
	c.finished(t, second.ID, robot, 2)
	send(t, m.String())
	c.only(t, b.ID, second.ID)
}

// letter waits for the dead letter with this body and returns its code and reason.
func letter(t *testing.T, body string) (code, reason string) {
	t.Helper()
	queue, url := sqs.NewFromConfig(awsConfig(t)), env(t, "HOLDFAST_INGEST_DEAD_LETTERS_URL")
	seen := 0
	poll(t, 30*time.Second, func() bool {
		// Other tests look here, too: what isn't wanted is theirs in a second.
		out, err := queue.ReceiveMessage(t.Context(), &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: 10, VisibilityTimeout: 1, MessageAttributeNames: []string{"All"},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range out.Messages {
			seen++
			if aws.ToString(m.Body) != body {
				continue
			}
			if _, err := queue.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: m.ReceiptHandle}); err != nil {
				t.Fatal(err)
			}
			code, reason = aws.ToString(m.MessageAttributes["code"].StringValue), aws.ToString(m.MessageAttributes["reason"].StringValue)
			return true
		}
		return false
	}, func() string { return fmt.Sprintf("no dead letter among %d is %s", seen, body) })
	return code, reason
}

// What never will be a request is laid aside whole, with what is wrong with it.
func TestMessagesThatStartNothing(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	up := map[string]string{"file_id": c.upload(t, "in.jsonl", lines(1, "/v1/chat/completions")).ID}
	first := c.message("taken", up)
	send(t, first.String())
	id := bridge.BatchID(c.tenant, "taken")
	c.appears(t, id)
	other := first
	other.Window = "1h"
	of := func(change func(*message)) string {
		m := c.message("m-"+t.Name(), up)
		change(&m)
		return m.String()
	}
	for _, tt := range []struct{ body, code, reason string }{
		{"no JSON, of " + c.tenant, "invalid_message", ""},
		{other.String(), "idempotency_conflict", "/correlation_id"},
		{of(func(m *message) { m.V = 2 }), "unsupported_version", "/v"},
		{of(func(m *message) { m.Principal = "" }), "invalid_message", "/principal"},
		{of(func(m *message) { m.Input = map[string]string{} }), "invalid_message", "/input"},
		{of(func(m *message) { m.Endpoint = "/v1/files" }), "invalid_endpoint", "/endpoint"},
		{of(func(m *message) { m.Input = map[string]string{"file_id": "file-nobodys"} }), "", ""},
		{of(func(m *message) { m.Input = map[string]string{"bucket": "elsewhere", "key": "in/" + c.tenant + "/a"} }), "invalid_bucket", "/input/bucket"},
		{of(func(m *message) {
			m.Input = map[string]string{"bucket": env(t, "HOLDFAST_INPUTS_BUCKET"), "key": "in/" + c.tenant + "/never put"}
		}), "object_not_found", "/input"},
		{of(func(m *message) {
			m.Input = map[string]string{"bucket": env(t, "HOLDFAST_INPUTS_BUCKET"), "key": "in/another/a.jsonl"}
		}), "invalid_key", "/input/key"},
	} {
		enqueue(t, tt.body)
		code, reason := letter(t, tt.body)
		if tt.code != "" && code != tt.code || code == "" || reason == "" || !strings.Contains(reason, tt.reason) {
			t.Errorf("%s is laid aside as %q: %q, want %q", tt.body, code, reason, tt.code)
		}
	}
	c.finished(t, id, robot, 1)
	c.only(t, id)
}

// One request, by each door and by each twice, at once and later: whoever is first,
// it is one batch.
func TestOneRequestByThreeDoors(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	const who = "somebody@example.com" // whose key it is
	c.enable(t, who)
	o := c.put(t, "by every door.jsonl", lines(4, "/v1/chat/completions"), nil)
	key, id := o.CorrelationID(), c.idOf(o)
	m := c.message(key, map[string]string{"bucket": o.Bucket, "key": o.Key, "version": o.Version})
	m.Principal = who
	body := fmt.Sprintf(`{"input_file_id":%q,"endpoint":"/v1/chat/completions","completion_window":"24h"}`, o.FileID(c.tenant))
	over := make(chan struct{})
	go func() {
		defer close(over)
		queue, url := sqs.NewFromConfig(awsConfig(t)), env(t, "HOLDFAST_INGEST_QUEUE_URL")
		for _, b := range []string{m.String(), m.String(), event(t, "ingest-s3.json", o)} {
			if _, err := queue.SendMessage(t.Context(), &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &b}); err != nil {
				t.Error(err)
			}
		}
	}()
	// Before the object has become a file, a create over HTTP is refused, and a message
	// that meets its claim in that moment comes back only when that would be stale.
	table := dynamo.Open(awsConfig(t), env(t, "HOLDFAST_TABLE"))
	poll(t, 30*time.Second, func() bool {
		_, err := table.Bridge.Row(t.Context(), c.tenant, bridge.Key{Tenant: c.tenant, CorrelationID: key}.Name())
		if err != nil && !errors.Is(err, bridge.ErrNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}, func() string { return "nobody claims it" })
	var got openai.Batch
	told := map[int]int{}
	poll(t, 30*time.Second, func() bool {
		status, _, b, err := c.post(t, body, idempotencyKey(key))
		told[status]++
		return err == nil && status == 200 && json.Unmarshal(b, &got) == nil
	}, func() string { return fmt.Sprintf("over HTTP, by status: %v", told) })
	<-over
	if got.ID != id {
		t.Errorf("over HTTP it is %s, not %s", got.ID, id)
	}
	c.finished(t, id, who, 4)
	send(t, m.String(), event(t, "ingest-s3-local.json", o))
	if again := c.created(t, body, idempotencyKey(key)); again != id {
		t.Errorf("over HTTP it is %s by then", again)
	}
	c.only(t, id)
}
