package door_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/bridge"
	"holdfast/internal/door"
	"holdfast/internal/memory"
)

// Two versions of one key that can't start have a word each, in whichever order they
// come, and one that starts between them has none.
func TestWordsOfVersions(t *testing.T) {
	r := newRig(t)
	first, l1 := r.put("k", "[", nil)
	second, l2 := r.put("k", line, nil)
	third, l3 := r.put("k", "PAR1", nil)
	r.refuse(l3)
	r.open(l2)
	r.refuse(l1)
	for o, says := range map[bridge.Object]string{first: "array", second: "", third: "Parquet"} {
		if said, there := r.errorObject(o); there != (says != "") || there && (said.Version != o.Version || !strings.Contains(said.Error.Message, says)) {
			t.Errorf("of %s: %+v", o.Version, said)
		}
	}
	if keys := r.mem.Objects.Keys(results); len(keys) != 2 || keys[0] != "acme/in/k.v1.error.json" || keys[1] != "acme/in/k.v3.error.json" {
		t.Errorf("%q", keys)
	}
}

// An event without a version is told of under the version that it is about.
func TestWordOfAnEventWithoutVersion(t *testing.T) {
	r := newRig(t)
	r.tenant("off", nil, access.Limits{})
	o := r.inputs.Store(inputs, "in/off/k", []byte(line), nil, start)
	req, _ := r.refuse(created(o, func(_, object map[string]any) { delete(object, "version-id") }))
	if said, there := r.errorObject(o); !there || said.Version != o.Version || said.Batch != bridge.BatchID("off", o.CorrelationID()) || req.CorrelationID != o.CorrelationID() {
		t.Errorf("%+v, %q", said, r.mem.Objects.Keys(results))
	}
}

func TestErrorKeys(t *testing.T) {
	const digest = 64
	long := strings.Repeat("v", 101)
	for name, c := range map[string]struct {
		o    bridge.Object
		want string
	}{
		"by version":          {bridge.Object{Key: "in/acme/a/b c.jsonl", Version: "IYV3.Mro8e"}, "acme/in/a/b c.jsonl.IYV3.Mro8e.error.json"},
		"by ETag":             {bridge.Object{Key: "in/acme/k", ETag: `"0123"`}, "acme/in/k.0123.error.json"},
		"suspended":           {bridge.Object{Key: "in/acme/k", Version: "null", ETag: `"0123"`}, "acme/in/k.0123.error.json"},
		"a version too long":  {bridge.Object{Key: "in/acme/k", Version: long}, ""},
		"a version in Greek":  {bridge.Object{Key: "in/acme/k", Version: "é"}, ""},
		"a version and slash": {bridge.Object{Key: "in/acme/k", Version: "../x"}, ""},
	} {
		got := door.ErrorKey("acme", c.o)
		if c.want != "" && got != c.want || c.want == "" && len(got) != len("acme/in/k..error.json")+digest {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// What nobody here will ever read is refused at once at both doors, with its own code;
// what may be granted yet is trouble.
func TestObjectsThatCannotBeRead(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		code string
	}{
		"archived":          {batch.ErrArchived, "object_archived"},
		"under its own key": {batch.ErrCustomerKey, "object_encrypted"},
		"not granted":       {errors.New("AccessDenied: not authorized to perform: kms:Decrypt"), ""},
	} {
		r := newRig(t)
		o, l := r.put("k", line, nil)
		m := letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version})))
		for at, l := range map[string]bridge.Letter{"Inputs.Head": l, "Inputs.Peek": l, "of a message": m} {
			f := memory.NewFaults()
			n := 1
			if at == "Inputs.Peek" {
				n = 2 // the first looks for a sidecar
			}
			f.Before(strings.Replace(at, "of a message", "Inputs.Head", 1), n, memory.Fail(c.err))
			req, err := r.doors(f).Open(t.Context(), l, start)
			if errors.Is(err, bridge.ErrRefused) != (c.code != "") || !strings.Contains(err.Error(), c.code) {
				t.Errorf("%s, %s: %v", name, at, err)
			}
			if c.code == "" {
				continue
			}
			if err := r.doors(nil).Refuse(t.Context(), l, req, err, start); err != nil {
				t.Error(err)
			}
		}
		said, there := r.errorObject(o)
		if dead := r.letters.Dead(); c.code != "" && (!there || said.Error.Code != c.code || len(dead) != 1 || dead[0].Code != c.code) {
			t.Errorf("%s: %+v, %+v", name, said, dead)
		}
	}
	r := newRig(t)
	_, l := r.put("k", line, nil)
	f := memory.NewFaults()
	f.Before("Inputs.Peek", 1, memory.Fail(batch.ErrArchived))
	if _, err := r.doors(f).Open(t.Context(), l, start); !errors.Is(err, bridge.ErrRefused) || !strings.Contains(err.Error(), "invalid_sidecar") {
		t.Errorf("a sidecar: %v", err)
	}
}

// What is older than a file may be is refused at both doors, by its name.
func TestExpiredObjects(t *testing.T) {
	r := newRig(t)
	r.expiry = 24 * time.Hour
	o, l := r.put("k", line, nil)
	m := letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key})))
	for at, l := range map[string]bridge.Letter{"object": l, "message": m} {
		if _, err := r.doors(nil).Open(t.Context(), l, start.Add(24*time.Hour-time.Second)); err != nil {
			t.Errorf("%s, a second before: %v", at, err)
		}
		_, err := r.doors(nil).Open(t.Context(), l, start.Add(24*time.Hour))
		for _, says := range []string{"object_expired", `"in/acme/k"`, "2026-10-12T09:00:00Z", "24h0m0s"} {
			if !errors.Is(err, bridge.ErrRefused) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %s", at, err, says)
			}
		}
	}
}

// last is the last delivery of all letters.
func (w world) last(f *memory.Faults) bridge.Drained {
	letters := w.letters.Receive(10)
	for i := range letters {
		letters[i].Last = true
	}
	failed, sum := bridge.NewDrainer(w.bridge(f, -1), w.doors(f), w.letters.With(f), nil).Drain(w.Context(), letters, time.Now())
	if len(failed) == 0 {
		w.letters.Delete(letters...)
	}
	return sum
}

// What its queue delivers for the last time leaves word of what it met, where its
// sender looks, and with the dead letters: an operator can send it all again.
func TestLastDelivery(t *testing.T) {
	for op, says := range map[string]string{
		"Tenants.Get": "read tenant acme", "Inputs.Head": "look at an object", "Inputs.Peek": "read a sidecar",
		"Bridge.Claim": "injected", "Workflow.Start": "injected",
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, f := newWorld(t), memory.NewFaults()
				f.Before(op, 0, memory.Fail(nil))
				o, l := w.put("k", line, nil)
				w.letters.Post(string(l.Body))
				if sum := w.round(f); sum != (bridge.Drained{Later: 1}) || len(w.letters.Dead()) > 0 || len(w.mem.Objects.Keys(results)) > 0 {
					t.Fatalf("the first delivery: %+v", sum)
				}
				time.Sleep(10 * time.Minute)
				if sum := w.last(f); sum != (bridge.Drained{Ended: 1}) || w.letters.Waiting() > 0 {
					t.Fatalf("the last: %+v", sum)
				}
				said, there := w.errorObject(o)
				dead := w.letters.Dead()
				events := w.mem.Table.EventsOf("acme", bridge.BatchID("acme", o.CorrelationID()))
				if !there || said.Error.Code != "tries_ended" || !strings.Contains(said.Error.Message, says) || !strings.Contains(said.Error.Message, "2 deliveries") ||
					len(dead) != 1 || dead[0].Body != string(l.Body) || dead[0].Code != "tries_ended" || dead[0].Reason != said.Error.Message || len(dead[0].Reason) > 1000 ||
					len(events) != 1 || !strings.Contains(events[0].Reason, "tries_ended") || w.refused != 1 {
					t.Fatalf("%+v\n%+v\n%+v\n%v counted", said, dead, events, w.refused)
				}
				// The trouble is over, and the operator sends it again.
				w.letters.Post(dead[0].Body)
				w.settle()
				if w.executions() != 1 {
					t.Errorf("%d executions", w.executions())
				}
			})
		})
	}
}

// A message's word is itself, with its reason. What can't be left stays with the queue,
// which puts the letter among the dead ones.
func TestLastDeliveryOfAMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), memory.NewFaults()
		f.Before("Inputs.Head", 0, memory.Fail(errors.New("kms:Decrypt denied")))
		o, _ := w.put("k", line, nil)
		body := string(letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key}))).Body)
		w.letters.Post(body)
		f.Before("Letters.Send", 1, memory.Fail(nil))
		if sum := w.last(f); sum != (bridge.Drained{Later: 1}) || w.letters.Waiting() != 1 {
			t.Errorf("without word: %+v", sum)
		}
		time.Sleep(time.Minute)
		if sum := w.last(f); sum != (bridge.Drained{Ended: 1}) {
			t.Errorf("%+v", sum)
		}
		if dead := w.letters.Dead(); len(dead) != 1 || dead[0].Body != body || dead[0].Code != "tries_ended" || !strings.Contains(dead[0].Reason, "kms:Decrypt denied") {
			t.Errorf("%+v", dead)
		}
	})
}

// A tenant that was full all the time hears that. A letter that lost its last delivery
// to somebody else's claim hears nothing: that one's fate is not its failure.
func TestLastDeliveryWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limit("acme", access.Limits{RunningBatches: 1})
		w.mem.Table.SeedBatch(batch.Batch{Tenant: "acme", ID: "batch_running0000000000000000", Status: batch.InProgress, CreatedAt: time.Now()})
		o, l := w.put("k", line, nil)
		w.letters.Post(string(l.Body))
		if sum := w.last(nil); sum != (bridge.Drained{Ended: 1}) {
			t.Errorf("%+v", sum)
		}
		if said, there := w.errorObject(o); !there || said.Error.Code != "tries_ended" || !strings.Contains(said.Error.Message, "limit of 1 running") {
			t.Errorf("%+v", said)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), memory.NewFaults()
		o, l := w.put("k", line, nil)
		f.Before("Workflow.Start", 0, memory.Fail(nil))
		w.letters.Post(string(l.Body))
		w.letters.Post(string(l.Body))
		w.round(f)
		w.letters.Post(string(l.Body))
		sum := w.last(f)
		if _, there := w.errorObject(o); sum.Held != 1 || sum.Ended != 0 || there {
			t.Errorf("%+v", sum)
		}
	})
}

// What ended Open itself, a panic or the end of its time, leaves word of the object that
// the event names; and none of what is no input.
func TestLastDeliveryThatWasNotOpened(t *testing.T) {
	r := newRig(t)
	o, l := r.put("k", line, nil)
	why := &bridge.LastError{Receives: 7, Cause: context.DeadlineExceeded}
	if err := r.doors(nil).Refuse(t.Context(), l, bridge.Request{}, why, start); err != nil {
		t.Fatal(err)
	}
	said, there := r.errorObject(o)
	if !there || said.Error.Code != "tries_ended" || said.Version != o.Version || said.Batch != bridge.BatchID("acme", o.CorrelationID()) {
		t.Errorf("%v: %+v", there, said)
	}
	if dead := r.letters.Dead(); len(dead) != 1 || dead[0].Code != "tries_ended" {
		t.Errorf("%+v", dead)
	}
	other := o
	letters := []bridge.Letter{
		letter("no JSON"), letter(message()),
		created(o, func(ev, _ map[string]any) { ev["detail-type"] = "Object Deleted" }),
		created(o, func(ev, _ map[string]any) { ev["detail"].(map[string]any)["bucket"] = map[string]any{"name": "mine"} }),
	}
	for _, key := range []string{"in/acme/k.holdfast.json", "in/acme/sub/", "in/k", "files/acme/k"} {
		other.Key, other.Bytes = key, 0
		letters = append(letters, created(other))
	}
	for _, l := range letters {
		if err := r.doors(nil).Refuse(t.Context(), l, bridge.Request{}, why, start); err != nil {
			t.Fatal(err)
		}
	}
	if keys := r.mem.Objects.Keys(results); len(keys) != 1 || len(r.letters.Dead()) != 1+len(letters) {
		t.Errorf("%q, %d dead letters", keys, len(r.letters.Dead()))
	}
	// What Open found out goes before what the event says.
	second := r.inputs.Store(inputs, "in/acme/second", []byte(line), nil, start)
	bare := created(second, func(_, object map[string]any) { delete(object, "version-id") })
	if err := r.doors(nil).Refuse(t.Context(), bare, r.open(bare), why, start); err != nil {
		t.Fatal(err)
	}
	if said, there := r.errorObject(second); !there || said.Version != second.Version {
		t.Errorf("%v: %+v", there, said)
	}
}
