package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/batch"
	"holdfast/internal/openai"
	"holdfast/internal/reap"
)

// running is a batch in progress whose parts f makes of pending ones.
func (h *house) running(parts int, f func(p *batch.Part)) batch.Batch {
	now := time.Now().Truncate(time.Millisecond)
	b := batch.Batch{Tenant: "acme", ID: "batch_running0000000000001", Status: batch.InProgress, Ver: 2, Parts: parts, CreatedAt: now, Deadline: now.Add(time.Hour), Due: now.Add(time.Hour)}
	b.Workflow = b.ID
	h.mem.Table.SeedBatch(b)
	if err := h.mem.Workflow.Start(h.t.Context(), b.ID, b.Tenant, b.ID); err != nil {
		h.t.Fatal(err)
	}
	for n := range parts {
		p := batch.Part{PartKey: batch.PartKey{Tenant: b.Tenant, Batch: b.ID, N: n}, State: batch.Pending, Ver: 3, Lines: 10, FirstLine: int64(10 * n), Due: now.Add(time.Hour)}
		f(&p)
		h.mem.Table.SeedPart(p)
	}
	return b
}

func dead(p *batch.Part) {
	p.State, p.Attempts, p.LastError, p.DeadAt = batch.Dead, 3, "out of \x1b[2J memory", time.Now()
	p.Due = time.Now().Add(time.Duration(1+p.N) * time.Minute)
}

func TestDeadList(t *testing.T) {
	h := newHouse(t)
	h.run("dead", "list").is(0, "No part is dead")
	b := h.running(130, dead)
	r := h.run("dead", "list").is(0)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if len(lines) != 130 || strings.ContainsRune(r.stdout, '\x1b') {
		t.Fatalf("%d lines: %s", len(lines), r.stdout)
	}
	for n, l := range lines {
		if !strings.HasPrefix(l, fmt.Sprintf("%s  part %-6d  10 of 10 lines open  sealed ", b.ID, n)) || !strings.HasSuffix(l, "memory") {
			t.Errorf("line %d: %s", n, l)
		}
	}
	var l openai.List[openai.BatchPart]
	h.run("dead", "list", "--json").is(0).object(&l)
	if len(l.Data) != 130 || l.Data[129].Part != 129 || l.HasMore {
		t.Errorf("%d parts", len(l.Data))
	}
}

func TestDeadShow(t *testing.T) {
	h := newHouse(t)
	b := h.running(2, dead)
	r := h.run("dead", "show", b.ID, "1").is(0)
	for _, want := range []string{"Part 1 of " + b.ID + ": dead", "10 from line 10", "3 since its last progress", "holdfast dead redrive " + b.ID + " 1", "memory"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in %s", want, r.stdout)
		}
	}
	var p openai.BatchPart
	h.run("dead", "show", b.ID, "0", "--json").is(0).object(&p)
	if p.Part != 0 || p.State != "dead" {
		t.Errorf("%+v", p)
	}
	h.run("dead", "show", b.ID, "2").is(1, "part_not_found")
	h.run("dead", "show", b.ID, "-1").is(2)
	h.run("dead", "show", b.ID, "x").is(2, "not the number of a part")
	h.run("dead", "show", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "0").is(1, "batch_not_found")
}

func TestDeadRedrive(t *testing.T) {
	h := newHouse(t)
	b := h.running(3, dead)
	h.run("dead", "redrive", b.ID, "0", "2").is(0, "Part 0 of "+b.ID+" is pending", "Part 2")
	for n, want := range []batch.State{batch.Pending, batch.Dead, batch.Pending} {
		if p, _ := h.mem.Table.Part(batch.PartKey{Tenant: "acme", Batch: b.ID, N: n}); p.State != want {
			t.Errorf("part %d is %s", n, p.State)
		}
	}
	if n := len(h.mem.Queue.Messages()); n != 2 {
		t.Errorf("%d messages", n)
	}
	h.run("dead", "redrive", b.ID, "0").is(1, "part_not_dead", "is pending")
	h.run("dead", "redrive", b.ID, "7").is(1, "part_not_found")
	h.run("dead", "redrive", b.ID).is(2)
	h.run("dead", "redrive", b.ID, "one").is(2, "not the number")
	b.Ending = batch.Cancelled
	h.mem.Table.SeedBatch(b)
	h.run("dead", "redrive", b.ID, "1").is(1, "batch_not_running", "cancelling")
}

func TestReclaim(t *testing.T) {
	h := newHouse(t)
	if r := h.run("reclaim").is(0); r.stdout != "nothing to do\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	h.running(3, func(p *batch.Part) {
		p.State, p.Owner, p.Attempts, p.LeaseUntil = batch.Leased, "gone", 1, time.Now().Add(-time.Minute)
		p.Due = p.LeaseUntil
	})
	if r := h.run("reclaim").is(0); r.stdout != "3 parts given back\n" {
		t.Errorf("stdout %q", r.stdout)
	}
	var r reap.Report
	h.run("reclaim", "--json").is(0).object(&r)
	if r != (reap.Report{}) {
		t.Errorf("%+v", r)
	}
}

// It goes on while there is more, and says what it came to in all.
func TestReclaimGoesOn(t *testing.T) {
	h := newHouse(t)
	calls := 0
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("Content-Type", "application/json")
		calls++
		fmt.Fprintf(w, `{"object":"reclaim","reaped":%d,"failed":%d,"more":%t}`, calls, calls/3, calls < 3)
		return true
	}
	r := h.run("reclaim").is(1, "1 part given back so far", "3 parts given back so far", "1 item could not be dealt with")
	if r.stdout != "6 parts given back\n" || calls != 3 {
		t.Errorf("stdout %q after %d calls", r.stdout, calls)
	}
}

func TestAdminNeedsItsScope(t *testing.T) {
	h := newHouse(t)
	key, secret, err := access.New(access.Key{Tenant: "acme", Principal: "bob", Name: "cli", Scopes: []access.Scope{access.Submit, access.Read}}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.mem.Table.Keys.Put(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	h.env[envKey] = secret
	for _, args := range [][]string{{"reclaim"}, {"dead", "list"}, {"dead", "show", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "0"}, {"dead", "redrive", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", "0"}} {
		h.run(args...).is(1, "insufficient_permissions", "submit,read,admin")
	}
}

func TestEvents(t *testing.T) {
	h := newHouse(t)
	b := h.running(1, dead)
	h.run("events", b.ID).is(0, "Nothing worth telling")
	at := time.Date(2026, 10, 12, 9, 0, 0, 7e6, time.UTC)
	for n := range 130 {
		e := batch.Event{Tenant: "acme", Batch: b.ID, At: at.Add(time.Duration(n) * time.Second), Part: n - 1, Ver: 4, Kind: batch.EventLeaseExpired, Owner: "owner-with-a-long-token", Attempt: 2, Reason: "x\x1by"}
		if err := h.mem.Table.Events.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	r := h.run("events", b.ID).is(0)
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if len(lines) != 130 || lines[0] != "2026-10-12T09:00:00.007Z  batch      lease_expired   attempt 2  owner owner-with-a…  x\uFFFDy" ||
		!strings.HasPrefix(lines[129], "2026-10-12T09:02:09.007Z  part 128   lease_expired") {
		t.Errorf("%d lines: %q … %q", len(lines), lines[0], lines[len(lines)-1])
	}
	if r := h.run("events", b.ID, "--limit", "101").is(0); strings.Count(r.stdout, "\n") != 101 {
		t.Errorf("%d lines", strings.Count(r.stdout, "\n"))
	}
	var l openai.List[openai.BatchEvent]
	h.run("events", b.ID, "--json").is(0).object(&l)
	if len(l.Data) != 130 || l.Data[0].Part != nil || *l.Data[1].Part != 0 {
		t.Errorf("%d events", len(l.Data))
	}
	// One whose id stands for ten minutes is shown when it was, and in its place.
	late := batch.Event{Tenant: "acme", Batch: b.ID, At: at.Truncate(10 * time.Minute), Seen: at.Add(90*time.Second + time.Millisecond), Part: batch.NoPart, Kind: batch.EventCircuitOpen, Reason: "it was late"}
	if err := h.mem.Table.Events.Record(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	lines = strings.Split(h.run("events", b.ID).is(0).stdout, "\n")
	if lines[91] != "2026-10-12T09:01:30.008Z  batch      circuit_open    it was late" {
		t.Errorf("%q", lines[88:94])
	}
	h.run("events", b.ID, "--json").is(0).object(&l)
	if e := l.Data[91]; e.Kind != "circuit_open" || e.Time != "2026-10-12T09:01:30.008Z" || e.CreatedAt != at.Unix()+90 {
		t.Errorf("%+v", e)
	}
	h.run("events", "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa").is(1, "batch_not_found")
	h.run("events").is(2, "name a BATCH: holdfast events BATCH [flags]", "See holdfast events --help.")
	h.run("events", b.ID, "--limit", "-1").is(2, "must not be negative")
}
