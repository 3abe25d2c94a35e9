package bridge_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// knowing is a service that knows no file before it is shown the object.
type knowing struct {
	jobs
	files map[string]bool
}

func (k *knowing) Submit(ctx context.Context, id string, r bridge.Request, now time.Time) (string, error) {
	if r.Object != nil {
		k.files[r.FileID] = true
	}
	if !k.files[r.FileID] {
		return "", fmt.Errorf("%w: no such file", bridge.ErrRefused)
	}
	return k.jobs.Submit(ctx, id, r, now)
}

// Somebody asked over HTTP for the file that an object will be, and died with the
// claim. Who comes with the object robs them and isn't refused for what they lacked:
// a refusal would have the S3 door give the object up.
func TestThiefBringsTheObject(t *testing.T) {
	r := newRig(t)
	service := &knowing{files: map[string]bool{}}
	dying, f := request("k"), memory.NewFaults()
	o := bridge.Object{Bucket: "inputs", Key: "in/acme/a.jsonl", Version: "v1", ETag: `"e"`, Bytes: 7}
	dying.FileID = o.FileID("acme")
	f.After("Bridge.Claim", 1, f.Crash)
	b := func(f *memory.Faults) *bridge.Bridge {
		b, err := bridge.New(r.table.With(f).Bridge, service, nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if _, err := b(f).Submit(t.Context(), dying, start); err == nil || r.state("k") != bridge.Reserved {
		t.Fatalf("%v, the row is %q", err, r.state("k"))
	}
	thief := dying
	thief.Object = &o
	if job, err := b(nil).Submit(t.Context(), thief, start.Add(time.Hour)); err != nil || job != "job of "+bridge.BatchID("acme", "k") || r.state("k") != bridge.Confirmed {
		t.Errorf("%q, %v, the row is %q", job, err, r.state("k"))
	}
}
