package door_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/door"
	"holdfast/internal/memory"
)

// off switches the drop of "acme" off.
func (w world) off() {
	w.Helper()
	t, err := w.mem.Table.Tenants.Get(w.Context(), "acme")
	if err != nil {
		w.Fatal(err)
	}
	t.Drop = nil
	if err := w.mem.Table.Tenants.Put(w.Context(), t); err != nil {
		w.Fatal(err)
	}
}

// silent demands that nobody was told of a failure.
func (w world) silent() {
	w.Helper()
	if keys := w.mem.Objects.Keys(results); len(keys) > 0 || len(w.letters.Dead()) > 0 || w.refused != 0 {
		w.Errorf("told of a failure: %v, %+v, %v counted", keys, w.letters.Dead(), w.refused)
	}
}

// resume is the reaper's, of acme's claim on this id.
func (w world) resume(id string) error {
	w.Helper()
	_, err := w.bridge(nil, -1).Resume(w.Context(), "acme", bridge.Key{Tenant: "acme", CorrelationID: id}.Name(), time.Now(), nil)
	return err
}

// What a door refuses today may be a copy of what it let pass yesterday. If that was
// started, so is the copy; if somebody was about to start it, it waits for that; and
// only if neither is so it is refused.
func TestDuplicateOfWhatIsRefusedByNow(t *testing.T) {
	input := func(o bridge.Object) any {
		return map[string]any{"bucket": o.Bucket, "key": o.Key, "version": o.Version}
	}
	newest := func(o bridge.Object) any { return map[string]any{"bucket": o.Bucket, "key": o.Key} }
	remove := func(w world, o bridge.Object) { w.inputs.Remove(o.Bucket, o.Key, o.Version) }
	for name, c := range map[string]struct {
		letter func(o bridge.Object, event bridge.Letter) bridge.Letter
		change func(w world, o bridge.Object) // of the world
	}{
		"drop switched off": {nil, func(w world, _ bridge.Object) { w.off() }},
		"version deleted":   {nil, remove},
		"sidecar broken": {nil, func(w world, o bridge.Object) {
			w.inputs.Store(inputs, o.Key+".holdfast.json", []byte("{"), nil, start)
		}},
		"limit lowered": {nil, func(w world, _ bridge.Object) { w.limit("acme", access.Limits{FileBytes: 1}) }},
		"message, version deleted": {func(o bridge.Object, _ bridge.Letter) bridge.Letter {
			return letter(message(with("input", input(o)), with("correlation_id", "m")))
		}, remove},
		"message of the newest, deleted": {func(o bridge.Object, _ bridge.Letter) bridge.Letter {
			return letter(message(with("input", newest(o)), with("correlation_id", "m"), with("metadata", map[string]any{"a": "b"}),
				with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": 7200})))
		}, remove},
		"message, limit lowered": {func(o bridge.Object, _ bridge.Letter) bridge.Letter {
			return letter(message(with("input", input(o)), with("correlation_id", "m")))
		}, func(w world, _ bridge.Object) { w.limit("acme", access.Limits{FileBytes: 1}) }},
	} {
		for how, f := range map[string]*memory.Faults{"started": nil, "claimed": memory.NewFaults(), "never seen": nil} {
			t.Run(name+", "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					o, l := w.put("k", line, nil)
					if c.letter != nil {
						l = c.letter(o, l)
					}
					if f != nil {
						f.After("Bridge.Claim", 1, f.Crash)
					}
					if how != "never seen" {
						req := w.open(l)
						if _, err := w.bridge(f, -1).Submit(t.Context(), req, time.Now()); (err == nil) != (how == "started") {
							t.Fatal(err)
						}
					}
					c.change(w, o)
					w.letters.Post(string(l.Body))
					sum := w.round(nil)
					switch how {
					case "started":
						if sum != (bridge.Drained{Started: 1}) || w.executions() != 1 {
							t.Errorf("%+v, %d executions", sum, w.executions())
						}
						w.silent()
					case "claimed":
						if sum != (bridge.Drained{Held: 1}) {
							t.Errorf("%+v", sum)
						}
						w.silent()
					default:
						if sum != (bridge.Drained{Refused: 1}) || w.refused != 1 {
							t.Errorf("%+v, %v counted", sum, w.refused)
						}
					}
				})
			})
		}
	}
}

// One that waits for a dead owner's claim is told of once the reaper was refused as
// well; and is done with in silence once the reaper started it.
func TestDuplicateOfADeadOwners(t *testing.T) {
	for what, change := range map[string]func(w world, o bridge.Object){
		"started": func(w world, _ bridge.Object) { w.off() },
		"refused": func(w world, o bridge.Object) { w.off(); w.inputs.Remove(o.Bucket, o.Key, o.Version) },
	} {
		synctest.Test(t, func(t *testing.T) {
			w, f := newWorld(t), memory.NewFaults()
			o, l := w.put("k", line, nil)
			f.After("Bridge.Claim", 1, f.Crash)
			if _, err := w.bridge(f, -1).Submit(t.Context(), w.open(l), time.Now()); err == nil {
				t.Fatal("it lives")
			}
			change(w, o)
			w.letters.Post(string(l.Body))
			w.round(nil)
			time.Sleep(bridge.DefaultClaimStale + time.Millisecond)
			if what == "refused" { // as by a service that looks into the input
				row, _ := w.mem.Table.Row("acme", o.CorrelationID())
				if err := w.mem.Table.Bridge.Release(t.Context(), row.Key, row.Token); err != nil {
					t.Fatal(err)
				}
			} else if err := w.resume(o.CorrelationID()); err != nil {
				t.Fatal(err)
			}
			w.settle()
			_, told := w.errorObject(o)
			if told != (what == "refused") || (w.executions() == 1) != (what == "started") {
				t.Errorf("%s: told %v, %d executions", what, told, w.executions())
			}
		})
	}
}

// An operator's answer can't be lost in a look at the table.
func TestRefusalWaitsForALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), memory.NewFaults()
		_, l := w.put("k", "[]", nil)
		f.Before("Bridge.Row", 1, memory.Fail(nil))
		w.letters.Post(string(l.Body))
		if sum := w.round(f); sum != (bridge.Drained{Later: 1}) {
			t.Errorf("%+v", sum)
		}
		w.silent()
		w.settle()
		if w.refused != 1 {
			t.Errorf("%v refused", w.refused)
		}
	})
}

// A message that is refused isn't a copy of what its id stands for only because the id
// is the same.
func TestRefusedMessageUnderATakenID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, _ := w.put("k", line, nil)
		in := with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version})
		w.letters.Post(string(letter(message(in, with("correlation_id", "m"))).Body))
		w.settle()
		w.silent()
		w.letters.Post(string(letter(message(in, with("correlation_id", "m"), with("endpoint", "/v1/none"))).Body))
		if sum := w.round(nil); sum != (bridge.Drained{Refused: 1}) || len(w.letters.Dead()) != 1 {
			t.Errorf("%+v, %+v", sum, w.letters.Dead())
		}
	})
}

// The settings under which a message was started are allowed no more: it was started.
func TestDuplicateOfAMessageWhoseSettingsAreGone(t *testing.T) {
	for _, window := range []any{"1h", nil} { // nil: the first of the site's
		synctest.Test(t, func(t *testing.T) { duplicateUnderOtherSettings(t, window) })
	}
}

func duplicateUnderOtherSettings(t *testing.T, window any) {
	w := newWorld(t)
	o, _ := w.put("k", line, nil)
	l := letter(message(with("input", map[string]any{"bucket": inputs, "key": o.Key, "version": o.Version}), with("correlation_id", "m"),
		with("endpoint", "/v1/embeddings"), with("completion_window", window), with("metadata", map[string]any{"a": "b"}),
		with("output_expires_after", map[string]any{"anchor": "created_at", "seconds": 7200})))
	w.letters.Post(string(l.Body))
	w.settle()
	narrow := site
	narrow.Allow.Endpoints, narrow.Allow.Windows = []string{"/v1/chat/completions"}, []string{"24h"}
	d := door.NewMessages(access.NewTenantCache(w.mem.Table.Tenants, nil), w.inputs, w.letters, narrow, nil)
	w.letters.Post(string(l.Body))
	failed, sum := bridge.NewDrainer(w.bridge(nil, -1), d, w.letters, nil).Drain(t.Context(), w.letters.Receive(10), time.Now())
	if len(failed) > 0 || sum != (bridge.Drained{Started: 1}) || len(w.letters.Dead()) > 0 {
		t.Errorf("%v, %+v, %+v", failed, sum, w.letters.Dead())
	}
}

// A message that names no version is of a key, and the same when it comes again, whatever
// lies there by then; and of another key it never is.
func TestDuplicateOfAMessageWithoutVersion(t *testing.T) {
	of := func(key string) string {
		return string(letter(message(with("input", map[string]any{"bucket": inputs, "key": key}), with("correlation_id", "m"))).Body)
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, _ := w.put("k", line, nil)
		w.letters.Post(of(o.Key))
		w.settle()
		w.put("k", line+line, nil)
		w.letters.Post(of(o.Key))
		if sum := w.round(nil); sum != (bridge.Drained{Started: 1}) || w.executions() != 1 {
			t.Errorf("%+v, %d executions", sum, w.executions())
		}
		w.silent()
		newest, _ := w.put("k", line+line, nil)
		named := string(letter(message(with("input", map[string]any{"bucket": inputs, "key": newest.Key, "version": newest.Version}), with("correlation_id", "m"))).Body)
		w.letters.Post(named)
		if sum := w.round(nil); sum != (bridge.Drained{Refused: 1}) || w.letters.Dead()[0].Code != "idempotency_conflict" {
			t.Errorf("of a version: %+v, %+v", sum, w.letters.Dead())
		}
		w.put("there", line, nil)
		for key, code := range map[string]string{"in/acme/gone": "object_not_found", "in/acme/there": "idempotency_conflict"} {
			w.letters.Post(of(key))
			if sum := w.round(nil); sum != (bridge.Drained{Refused: 1}) {
				t.Errorf("%s: %+v", key, sum)
			}
			if dead := w.letters.Dead(); len(dead) == 0 || dead[len(dead)-1].Code != code || dead[len(dead)-1].Body != of(key) {
				t.Errorf("%s: %+v", key, dead)
			}
		}
	})
}

// The version "null" is one object after another, and none of those that have a version.
func TestDuplicateOfAMessageOfTheNullVersion(t *testing.T) {
	of := func(input map[string]any) string {
		input["bucket"], input["key"] = inputs, "in/acme/k"
		return string(letter(message(with("input", input), with("correlation_id", "m"))).Body)
	}
	null := func(w world, data string) {
		w.inputs.Remove(inputs, "in/acme/k", "null")
		w.inputs.StoreAs(bridge.Object{Bucket: inputs, Key: "in/acme/k", Version: "null", StoredAt: start}, []byte(data), nil)
	}
	for name, c := range map[string]struct {
		first map[string]any
		put   func(world)
		sum   bridge.Drained
	}{
		"replaced":     {map[string]any{"version": "null"}, func(w world) { null(w, line) }, bridge.Drained{Started: 1}},
		"of a version": {map[string]any{}, func(w world) { w.put("k", line, nil) }, bridge.Drained{Refused: 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			c.put(w)
			w.letters.Post(of(c.first))
			w.settle()
			null(w, line+line)
			w.letters.Post(of(map[string]any{"version": "null"}))
			if sum := w.round(nil); sum != c.sum || len(w.letters.Dead()) != sum.Refused || w.executions() != 1 {
				t.Errorf("%s: %+v, %+v", name, sum, w.letters.Dead())
			}
		})
	}
}

// An object whose wishes changed before anything was started for it is not a duplicate
// of what nobody started.
func TestWishesThatChangeUnderADeadOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, f := newWorld(t), memory.NewFaults()
		o, l := w.put("k", line, nil)
		f.After("Bridge.Claim", 1, f.Crash)
		w.letters.Post(string(l.Body))
		w.round(f)
		w.inputs.Store(inputs, o.Key+".holdfast.json", []byte(`{"endpoint":"/v1/embeddings"}`), nil, start)
		w.letters.Post(string(l.Body))
		if sum := w.round(nil); sum != (bridge.Drained{Held: 1}) || w.letters.Waiting() == 0 {
			t.Fatalf("%+v, %d waiting", sum, w.letters.Waiting())
		}
		w.silent()
		time.Sleep(bridge.DefaultClaimStale + time.Millisecond)
		if err := w.resume(o.CorrelationID()); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if b, _ := w.mem.Table.Batch("acme", bridge.BatchID("acme", o.CorrelationID())); w.executions() != 1 || b.Endpoint != site.Allow.Endpoints[0] {
			t.Errorf("%d executions, %+v", w.executions(), b)
		}
		w.silent()
	})
}

// Anybody of the tenant can use an object's own name as the key of another request.
func TestObjectWhoseIDIsAnothers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		o, l := w.put("k", line, nil)
		other, m := w.put("other", line, nil)
		req := w.open(m)
		req.CorrelationID = o.CorrelationID()
		if _, err := w.bridge(nil, -1).Submit(t.Context(), req, time.Now()); err != nil {
			t.Fatal(err)
		}
		for range 2 { // word of it twice is word of it once
			w.letters.Post(string(l.Body))
			if sum := w.round(nil); sum != (bridge.Drained{Refused: 1}) {
				t.Errorf("%+v", sum)
			}
		}
		said, told := w.errorObject(o)
		events := w.mem.Table.EventsOf("acme", bridge.BatchID("acme", o.CorrelationID()))
		if !told || said.Error.Code != "idempotency_conflict" || !strings.Contains(said.Error.Message, o.CorrelationID()) || w.refused != 2 || len(events) != 1 {
			t.Errorf("%v %+v, %v counted, events %+v", told, said.Error, w.refused, events)
		}
		if _, told := w.errorObject(other); told {
			t.Error("told of the other")
		}
	})
}

// A service's own words reach whoever put the object, or sent the message.
func TestServicesRefusal(t *testing.T) {
	service := &jobs.JobError{Status: 422, Code: "bad_input", Message: "line 7 is no request"}
	why := fmt.Errorf("job x: %w: %w", &bridge.RefusedError{Code: service.Code, Reason: service.Message}, service)
	r := newRig(t)
	o, l := r.put("k", line, nil)
	if err := r.doors(nil).Refuse(t.Context(), l, r.open(l), why, start); err != nil {
		t.Fatal(err)
	}
	if said, _ := r.errorObject(o); said.Error.Code != "bad_input" || said.Error.Message != "line 7 is no request" {
		t.Errorf("%+v", said.Error)
	}
	m := letter(message())
	if err := r.doors(nil).Refuse(t.Context(), m, bridge.Request{}, why, start); err != nil {
		t.Fatal(err)
	}
	if dead := r.letters.Dead(); len(dead) != 1 || dead[0].Code != "bad_input" || dead[0].Reason != "line 7 is no request" {
		t.Errorf("%+v", dead)
	}
}

// An event of S3 is one by where it comes from, or by its form; it is refused as one.
func TestEventsByEitherSign(t *testing.T) {
	for name, change := range map[string]func(ev, _ map[string]any){
		"no detail-type":  func(ev, _ map[string]any) { delete(ev, "detail-type") },
		"null for one":    func(ev, _ map[string]any) { ev["detail-type"] = nil },
		"from nowhere":    func(ev, _ map[string]any) { delete(ev, "source") },
		"no event at all": func(ev, _ map[string]any) { delete(ev, "source"); delete(ev, "detail-type") },
	} {
		r := newRig(t)
		o, _ := r.put("k", line, nil)
		req, err := r.doors(nil).Open(t.Context(), created(o, change), start)
		said := ""
		if e, ok := errors.AsType[*bridge.RefusedError](err); ok {
			said = e.Code
		}
		isEvent := said == "invalid_event"
		if !errors.Is(err, bridge.ErrRefused) || req.Tenant != "" || isEvent == (name == "no event at all") {
			t.Errorf("%s: %v, %q, %+v", name, err, said, req)
		}
	}
}
