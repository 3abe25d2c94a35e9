package bridge_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/lease"
)

func (r *rig) services(s bridge.Services) *bridge.Bridge {
	r.Helper()
	b, err := bridge.New(r.table.Bridge, s, &bridge.Options{Wait: -1, Log: slog.New(slog.NewJSONHandler(&r.log, nil))})
	if err != nil {
		r.Fatal(err)
	}
	return b
}

// Each request goes to its own service, to be started and to be found.
func TestServices(t *testing.T) {
	own, external := &jobs{}, &jobs{}
	s := bridge.Services{"": own, "jobs": external}
	a, b := request("a"), request("b")
	b.Service = "jobs"
	for _, c := range []struct {
		id string
		r  bridge.Request
		to *jobs
	}{{"1", a, own}, {"2", b, external}} {
		if _, err := s.Find(t.Context(), c.id, c.r); !errors.Is(err, bridge.ErrNotFound) {
			t.Error(err)
		}
		if job, err := s.Submit(t.Context(), c.id, c.r, start); err != nil || job != "job of "+c.id {
			t.Errorf("%q, %v", job, err)
		}
		if job, err := s.Find(t.Context(), c.id, c.r); err != nil || job != "job of "+c.id {
			t.Errorf("%q, %v", job, err)
		}
		if _, there := c.to.started[c.id]; !there {
			t.Errorf("%s went elsewhere", c.id)
		}
	}
	if len(own.started) != 1 || len(external.started) != 1 {
		t.Errorf("%d and %d", len(own.started), len(external.started))
	}
}

// Of a service that isn't there no job can be found, which is no trouble.
func TestFindOfAServiceThatIsNotThere(t *testing.T) {
	q := request("a")
	q.Service = "jobs"
	if _, err := (bridge.Services{"": &jobs{}}).Find(t.Context(), "1", q); !errors.Is(err, bridge.ErrNotFound) || !errors.Is(err, bridge.ErrUnserved) {
		t.Errorf("%v", err)
	}
}

// A service that isn't configured refuses nothing: the claim stands until it is. Nor is
// it stolen by who can't submit it, which would keep those waiting who can.
func TestServiceThatIsNotThere(t *testing.T) {
	r, external := newRig(t), &jobs{}
	q := request("k")
	q.Service = "jobs"
	without, with := r.services(bridge.Services{"": r.jobs}), r.services(bridge.Services{"": r.jobs, "jobs": external})
	if _, err := without.Submit(t.Context(), q, start); !errors.Is(err, bridge.ErrUnserved) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
	before, _ := r.table.Row("acme", "k")
	if name, err := without.Service(t.Context(), "acme", nameOfK, stale); name != "jobs" || !errors.Is(err, bridge.ErrUnserved) {
		t.Errorf("%q, %v", name, err)
	}
	id, err := without.Resume(t.Context(), "acme", nameOfK, stale, nil)
	if id != idOfK || !errors.Is(err, bridge.ErrUnserved) || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%q, %v", id, err)
	}
	// Another door's copy waits for it, fresh or stale.
	for _, now := range []time.Time{start, stale} {
		if _, err := without.Submit(t.Context(), request("k"), now); !errors.Is(err, lease.ErrHeld) {
			t.Errorf("%v", err)
		}
	}
	if after, _ := r.table.Row("acme", "k"); after.Ver != before.Ver || after.Token != before.Token || after.State != bridge.Reserved {
		t.Errorf("%+v, was %+v", after, before)
	}
	if name, err := with.Service(t.Context(), "acme", nameOfK, stale); name != "jobs" || err != nil {
		t.Errorf("%q, %v", name, err)
	}
	if _, err := with.Resume(t.Context(), "acme", nameOfK, stale, nil); err != nil {
		t.Error(err)
	}
	if len(external.started) != 1 || len(r.jobs.started) != 0 || r.state("k") != bridge.Confirmed {
		t.Errorf("%d and %d jobs, %s", len(external.started), len(r.jobs.started), r.state("k"))
	}
	if name, err := with.Service(t.Context(), "acme", nameOfK, stale); name != "" || !errors.Is(err, bridge.ErrNotFound) {
		t.Errorf("%q, %v", name, err)
	}
	// Confirmed it is found by everybody.
	if job, err := without.Submit(t.Context(), request("k"), stale); err != nil || job != "job of "+idOfK {
		t.Errorf("%q, %v", job, err)
	}
}

// The same request by a door that would start its job elsewhere: it went where the
// first one sent it, whoever goes on with it.
func TestServiceIsTheFirstDoors(t *testing.T) {
	r, external := newRig(t), &jobs{after: func(n int) error {
		if n == 1 {
			return errors.New("answer lost")
		}
		return nil
	}}
	b := r.services(bridge.Services{"": r.jobs, "jobs": external})
	q := request("k")
	q.Service = "jobs"
	if _, err := b.Submit(t.Context(), q, start); err == nil {
		t.Fatal("no error")
	}
	// While it is fresh, its job is looked for there; once stale, submitted there.
	if job, err := b.Submit(t.Context(), request("k"), start); err != nil || job != "job of "+idOfK {
		t.Errorf("%q, %v", job, err)
	}
	if _, err := b.Submit(t.Context(), request("k"), stale); err != nil {
		t.Error(err)
	}
	if len(r.jobs.started) != 0 || len(external.started) != 1 {
		t.Errorf("%d here, %d there", len(r.jobs.started), len(external.started))
	}
}
