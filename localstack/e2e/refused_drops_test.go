package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/openai"
)

// refusal waits for what the S3 door says of an object that starts nothing.
func (c *client) refusal(t *testing.T, o bridge.Object) (said door.Refusal) {
	t.Helper()
	bucket, key := env(t, "HOLDFAST_RESULTS_BUCKET"), door.ErrorKey(c.tenant, o)
	poll(t, 30*time.Second, func() bool {
		out, err := s3client(t).GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: &key})
		if _, missing := errors.AsType[*types.NoSuchKey](err); missing {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		defer out.Body.Close()
		if err := json.NewDecoder(out.Body).Decode(&said); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		return true
	}, func() string { return "nothing is said of " + o.Key })
	return said
}

// refused holds the object to its refusal, which is told where people look: beside
// the input's name, and among the events of the batch that it would have been.
func (c *client) refused(t *testing.T, o bridge.Object, code string) {
	t.Helper()
	said := c.refusal(t, o)
	if said.Error.Code != code || said.Error.Message == "" || said.Key != o.Key || said.Bucket != o.Bucket || said.At.IsZero() {
		t.Errorf("%s: %+v, want %s", o.Key, said, code)
	}
	out, errOut, exit := cli(t, []string{"HOLDFAST_API_KEY=" + c.key}, "events", said.Batch, "--json")
	var list openai.List[openai.BatchEvent]
	if err := json.Unmarshal(out, &list); err != nil || exit != 0 {
		t.Fatalf("events %s: exit %d, %v, %s%s", said.Batch, exit, err, out, errOut)
	}
	if len(list.Data) != 1 || list.Data[0].Kind != "refused" || list.Data[0].BatchID != said.Batch || !strings.Contains(list.Data[0].Reason, code) {
		t.Errorf("%s: events %+v", o.Key, list.Data)
	}
}

// What can't start says why, and none of it is a batch. What is no input says
// nothing, and is none either.
func TestDropsThatStartNothing(t *testing.T) {
	t.Parallel()
	good := lines(2, "/v1/chat/completions")
	shut := newTenant(t, "submit,read")
	shut.refused(t, shut.put(t, "in vain.jsonl", good, nil), "drop_not_enabled")

	c := newTenant(t, "submit,read")
	c.enable(t, dropper)
	if out, said, code := cli(t, nil, "tenant", "set", c.tenant, "--file-bytes", fmt.Sprint(len(good))); code != 0 {
		t.Fatalf("tenant set: exit %d, %s%s", code, out, said)
	}
	for _, quiet := range []string{"folder/", "good.jsonl.holdfast.json"} {
		c.put(t, quiet, nil, nil)
	}
	c.put(t, "odd.jsonl.holdfast.json", []byte(`{"endpoint":7}`), nil)
	for _, tt := range []struct {
		name, code string
		data       []byte
		metadata   map[string]string
	}{
		{"large.jsonl", "file_too_large", append(append([]byte{}, good...), '\n'), nil},
		{"empty.jsonl", "empty_file", nil, nil},
		{"a.jsonl.gz", "not_jsonl", []byte("\x1f\x8b\x08\x00"), nil},
		{"a list.json", "not_jsonl", []byte(`[{"custom_id":"a"}]`), nil},
		{"somewhere.jsonl", "invalid_endpoint", good, map[string]string{"endpoint": "/v1/files"}},
		{"sometime.jsonl", "invalid_completion_window", good, map[string]string{"completion-window": "7m"}},
		{"odd.jsonl", "invalid_type", good, nil},
		{strings.Repeat("n", 1024-len("in//.jsonl")-len(c.tenant)) + ".jsonl", "not_jsonl", []byte("no"), nil},
	} {
		c.refused(t, c.put(t, tt.name, tt.data, tt.metadata), tt.code)
	}
	// All that was put has been looked at when this has.
	last := c.idOf(c.put(t, "good enough.jsonl", good, nil))
	c.finished(t, last, dropper, 2)
	c.only(t, last)
	if ids := shut.batches(t); len(ids) > 0 {
		t.Errorf("of a tenant whose door is shut: %v", ids)
	}
}
