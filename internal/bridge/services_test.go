package bridge_test

import (
	"errors"
	"log/slog"
	"testing"

	"holdfast/internal/bridge"
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

// A service that isn't configured refuses nothing: the claim stands until it is.
func TestServiceThatIsNotThere(t *testing.T) {
	r, external := newRig(t), &jobs{}
	q := request("k")
	q.Service = "jobs"
	without := r.services(bridge.Services{"": r.jobs})
	if _, err := without.Submit(t.Context(), q, start); err == nil || errors.Is(err, bridge.ErrRefused) {
		t.Errorf("%v", err)
	}
	id, err := without.Resume(t.Context(), "acme", nameOfK, stale)
	if id != idOfK || err == nil || errors.Is(err, bridge.ErrRefused) || r.state("k") != bridge.Reserved {
		t.Errorf("%q, %v, %s", id, err, r.state("k"))
	}
	later := stale.Add(bridge.DefaultClaimStale * 2)
	if _, err := r.services(bridge.Services{"": r.jobs, "jobs": external}).Resume(t.Context(), "acme", nameOfK, later); err != nil {
		t.Error(err)
	}
	if len(external.started) != 1 || len(r.jobs.started) != 0 || r.state("k") != bridge.Confirmed {
		t.Errorf("%d and %d jobs, %s", len(external.started), len(r.jobs.started), r.state("k"))
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
