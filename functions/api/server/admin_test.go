package server_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
	"holdfast/internal/lease"
	"holdfast/internal/memory"
)

// running seeds a batch of the tenant that is in progress, with parts that f makes
// of pending ones.
func (h *house) running(tenant string, parts int, f func(n int, p *batch.Part)) batch.Batch {
	b := batch.Batch{
		Tenant: tenant, ID: fmt.Sprintf("batch_%s%016d", tenant, len(h.mem.Workflow.Executions())), Status: batch.InProgress, Ver: 2, Parts: parts, Lines: int64(10 * parts),
		CreatedAt: start, Deadline: start.Add(24 * time.Hour), Due: start.Add(10 * time.Minute),
	}
	b.Workflow = b.ID
	h.mem.Table.SeedBatch(b)
	if err := h.mem.Workflow.Start(h.t.Context(), b.ID, tenant, b.ID); err != nil {
		h.t.Fatal(err)
	}
	for n := range parts {
		p := batch.Part{PartKey: batch.PartKey{Tenant: tenant, Batch: b.ID, N: n}, State: batch.Pending, Ver: 3, Lines: 10, FirstLine: int64(10 * n), TaskToken: "secret", Due: start.Add(time.Hour)}
		f(n, &p)
		h.mem.Table.SeedPart(p)
	}
	return b
}

func lapsed(_ int, p *batch.Part) {
	p.State, p.Owner, p.Attempts = batch.Leased, lease.NewToken(), 1
	p.LeaseUntil, p.Due = start.Add(-time.Minute), start.Add(-time.Minute)
}

func dead(n int, p *batch.Part) {
	p.State, p.Attempts, p.LastError = batch.Dead, 3, "its worker says why"
	p.DeadAt, p.Due = start.Add(-time.Minute), start.Add(time.Duration(1+n/2)*time.Minute)
}

type report struct {
	Object                            string
	Reaped, Resent, Dead, Failed, Due int
	More                              bool
}

// A reclaim does what the next tick would, for the caller's tenant alone.
func TestReclaim(t *testing.T) {
	h := newHouse(t)
	mine, others := h.running("acme", 3, lapsed), h.running("other", 2, lapsed)
	var got report
	h.do(call{method: "POST", path: "/v1/admin/reclaim", as: "acme admin"}).ok(&got)
	if got != (report{Object: "reclaim", Reaped: 3}) {
		t.Errorf("%+v", got)
	}
	for _, p := range h.mem.Table.PartsOf("acme", mine.ID) {
		if p.State != batch.Pending || p.Lapses != 1 {
			t.Errorf("part %d is %s", p.N, p.State)
		}
	}
	for _, p := range h.mem.Table.PartsOf("other", others.ID) {
		if p.State != batch.Leased {
			t.Errorf("another tenant's part %d is %s", p.N, p.State)
		}
	}
	if n := len(h.mem.Queue.Messages()); n != 3 {
		t.Errorf("%d messages", n)
	}
	got = report{}
	h.do(call{method: "POST", path: "/v1/admin/reclaim", as: "acme admin"}).ok(&got)
	if got != (report{Object: "reclaim"}) {
		t.Errorf("again: %+v", got)
	}
}

// Trouble of the table is told as such, unless something was done before.
func TestReclaimInTrouble(t *testing.T) {
	h := newHouse(t)
	h.running("acme", 20, lapsed)
	h.faults.Before("Reaps.Due", 0, memory.Fail(nil))
	h.do(call{method: "POST", path: "/v1/admin/reclaim", as: "acme admin"}).refused(503, "service_unavailable", "")
	h = newHouse(t)
	h.running("acme", 20, lapsed)
	h.faults.Before("Reaps.Due", 32, memory.Fail(nil))
	var got report
	h.do(call{method: "POST", path: "/v1/admin/reclaim", as: "acme admin"}).ok(&got)
	if got.Reaped == 0 || got.Failed != 1 {
		t.Errorf("%+v", got)
	}
}

type deadPart struct {
	ID, Object, State string
	BatchID           string `json:"batch_id"`
	Part              int
	FirstLine         int64 `json:"first_line"`
	Lines, Attempts   int
	DeadAt            *int64 `json:"dead_at"`
	SealsAt           *int64 `json:"seals_at"`
	LastError         string `json:"last_error"`
}

func TestDeadPages(t *testing.T) {
	h := newHouse(t)
	b := h.running("acme", 9, dead)
	h.running("other", 4, dead)
	for _, limit := range []int{1, 4, 100} {
		var seen []int
		after := ""
		for {
			var l struct {
				Object  string
				Data    []deadPart
				LastID  string `json:"last_id"`
				HasMore bool   `json:"has_more"`
			}
			a := h.do(call{method: "GET", path: fmt.Sprintf("/v1/admin/dead?limit=%d&after=%s", limit, url.QueryEscape(after)), as: "acme admin"})
			if strings.Contains(a.Body.String(), "secret") {
				t.Errorf("a task token is shown: %s", a.Body)
			}
			a.ok(&l)
			for _, p := range l.Data {
				seen = append(seen, p.Part)
				if p.Object != "batch.part" || p.State != "dead" || p.BatchID != b.ID || p.Attempts != 3 || p.LastError == "" || p.Lines != 10 ||
					p.FirstLine != int64(10*p.Part) || *p.DeadAt != start.Add(-time.Minute).Unix() || *p.SealsAt != start.Add(time.Duration(1+p.Part/2)*time.Minute).Unix() {
					t.Errorf("part %+v", p)
				}
			}
			if after = l.LastID; !l.HasMore {
				break
			}
		}
		if !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}) {
			t.Errorf("by %d: %v", limit, seen)
		}
	}
	var one deadPart
	h.do(call{method: "GET", path: "/v1/admin/dead/" + b.ID + "/7", as: "acme admin"}).ok(&one)
	if one.Part != 7 || one.State != "dead" {
		t.Errorf("%+v", one)
	}
	for path, c := range map[string]struct{ code, param string }{
		"?limit=0": {"invalid_limit", "limit"}, "?limit=101": {"invalid_limit", "limit"}, "?order=desc": {"invalid_order", "order"},
		"?after=x": {"invalid_cursor", "after"}, "?after=1.2.batch_": {"invalid_cursor", "after"}, "?after=-1.2." + b.ID: {"invalid_cursor", "after"},
	} {
		h.do(call{method: "GET", path: "/v1/admin/dead" + path, as: "acme admin"}).refused(400, c.code, c.param)
	}
	for path, c := range map[string]struct{ code, param string }{
		"batch_none/0": {"batch_not_found", "batch_id"}, "batch_aaaaaaaaaaaaaaaaaaaaaaaaaa/0": {"batch_not_found", "batch_id"},
		b.ID + "/9": {"part_not_found", "part"}, b.ID + "/-1": {"part_not_found", "part"}, b.ID + "/x": {"part_not_found", "part"},
		b.ID + "/99999999999999999999": {"part_not_found", "part"},
	} {
		h.do(call{method: "GET", path: "/v1/admin/dead/" + path, as: "acme admin"}).refused(404, c.code, c.param)
	}
}

func redrive(id string, part any) call {
	return call{method: "POST", path: "/v1/admin/redrive", as: "acme admin", body: fmt.Sprintf(`{"batch_id":%q,"part":%v}`, id, part)}
}

func TestRedrive(t *testing.T) {
	h := newHouse(t)
	b := h.running("acme", 2, dead)
	var p deadPart
	h.do(redrive(b.ID, 1)).ok(&p)
	if p.State != "pending" || p.Attempts != 0 || p.DeadAt != nil || p.SealsAt != nil {
		t.Errorf("%+v", p)
	}
	if got, _ := h.mem.Table.Part(batch.PartKey{Tenant: "acme", Batch: b.ID, N: 1}); got.State != batch.Pending || len(h.mem.Queue.Messages()) != 1 {
		t.Errorf("stored %+v", got)
	}
	a := h.do(redrive(b.ID, 1))
	a.refused(400, "part_not_dead", "part")
	if !strings.Contains(a.Body.String(), "is pending") {
		t.Errorf("no reason: %s", a.Body)
	}
}

func TestRedriveRefusals(t *testing.T) {
	h := newHouse(t)
	b := h.running("acme", 6, func(n int, p *batch.Part) {
		dead(n, p)
		p.State = []batch.State{batch.Pending, batch.Leased, batch.Done, batch.Sealed, batch.Dead, batch.Dead}[n]
	})
	for n, state := range []string{"pending", "leased", "done", "sealed"} {
		a := h.do(redrive(b.ID, n))
		a.refused(400, "part_not_dead", "part")
		if !strings.Contains(a.Body.String(), "is "+state) {
			t.Errorf("%s", a.Body)
		}
	}
	h.do(redrive(b.ID, 6)).refused(404, "part_not_found", "part")
	h.do(redrive("batch_aaaaaaaaaaaaaaaaaaaaaaaaaa", 0)).refused(404, "batch_not_found", "batch_id")
	h.do(redrive("../x", 0)).refused(404, "batch_not_found", "batch_id")
	others := h.running("other", 1, dead)
	h.do(redrive(others.ID, 0)).refused(404, "batch_not_found", "batch_id")
	for body, c := range map[string]struct{ code, param string }{
		``: {"invalid_json", ""}, `[]`: {"invalid_json", ""}, `{"part":1}`: {"missing_required_parameter", "batch_id"},
		`{"batch_id":"b"}`: {"missing_required_parameter", "part"}, `{"batch_id":1,"part":1}`: {"invalid_type", "batch_id"},
		`{"batch_id":"b","part":"1"}`: {"invalid_type", "part"}, `{"batch_id":"b","part":-1}`: {"invalid_type", "part"},
		`{"batch_id":"b","part":1.0}`: {"invalid_type", "part"}, `{"batch_id":"b","part":1e99}`: {"invalid_type", "part"},
		`{"batch_id":"b","part":9999999999}`: {"invalid_type", "part"}, `{"batch_id":"b","part":null}`: {"missing_required_parameter", "part"},
	} {
		c2 := redrive("", 0)
		c2.body = body
		a := h.do(c2)
		if a.Code != 400 {
			t.Errorf("%s: %d %s", body, a.Code, a.Body)
		}
		if c.code != "invalid_json" {
			a.refused(400, c.code, c.param)
		}
	}
	for how, change := range map[string]func(*batch.Batch){
		"cancelling": func(b *batch.Batch) { b.Ending = batch.Cancelled }, "ends as expired": func(b *batch.Batch) { b.Ending = batch.Expired },
		"completed": func(b *batch.Batch) { b.Status, b.Ending = batch.Completed, batch.Completed }, "failed": func(b *batch.Batch) { b.Status = batch.Failed },
	} {
		closed := b
		change(&closed)
		h.mem.Table.SeedBatch(closed)
		for _, n := range []int{4, 0} {
			a := h.do(redrive(b.ID, n))
			a.refused(400, "batch_not_running", "batch_id")
			if !strings.Contains(a.Body.String(), how) {
				t.Errorf("%s: %s", how, a.Body)
			}
		}
	}
	if p, _ := h.mem.Table.Part(batch.PartKey{Tenant: "acme", Batch: b.ID, N: 4}); p.State != batch.Dead || len(h.mem.Queue.Messages()) != 0 {
		t.Errorf("part is %s", p.State)
	}
}

// Each of them needs its scope, and nothing less.
func TestAdminScopes(t *testing.T) {
	h := newHouse(t)
	b := h.running("acme", 1, dead)
	for _, c := range []call{
		{method: "POST", path: "/v1/admin/reclaim"}, {method: "GET", path: "/v1/admin/dead"},
		{method: "GET", path: "/v1/admin/dead/" + b.ID + "/0"}, redrive(b.ID, 0),
	} {
		c.as = "acme both"
		h.do(c).refused(403, "insufficient_permissions", "")
		c.as = ""
		h.do(c).refused(401, "invalid_api_key", "")
	}
	h.do(call{method: "GET", path: "/v1/batches/" + b.ID + "/events", as: "acme admin"}).refused(403, "insufficient_permissions", "")
	h.do(call{method: "GET", path: "/v1/admin/reclaim", as: "acme admin"}).refused(405, "method_not_allowed", "")
	if p, _ := h.mem.Table.Part(batch.PartKey{Tenant: "acme", Batch: b.ID}); p.State != batch.Dead {
		t.Errorf("part is %s", p.State)
	}
}

type wireEvent struct {
	ID, Object, Kind, Owner, Reason, Time string
	BatchID                               string `json:"batch_id"`
	CreatedAt                             int64  `json:"created_at"`
	Part                                  *int
	Attempt                               int
}

func TestEvents(t *testing.T) {
	h := newHouse(t)
	b := h.running("acme", 1, lapsed)
	for n := range 5 {
		e := batch.Event{Tenant: "acme", Batch: b.ID, At: start.Add(time.Duration(n) * time.Second), Part: n - 1, Ver: int64(n), Kind: batch.EventClaimed, Owner: "worker", Attempt: n}
		if err := h.mem.Table.Events.Record(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	path := "/v1/batches/" + b.ID + "/events"
	for _, limit := range []int{2, 5, 1000} {
		var seen []wireEvent
		after := ""
		for {
			var l struct {
				Data    []wireEvent
				LastID  string `json:"last_id"`
				HasMore bool   `json:"has_more"`
			}
			h.do(call{method: "GET", path: fmt.Sprintf("%s?limit=%d&after=%s", path, limit, url.QueryEscape(after)), as: "acme read"}).ok(&l)
			seen = append(seen, l.Data...)
			if after = l.LastID; !l.HasMore {
				break
			}
		}
		if len(seen) != 5 {
			t.Fatalf("%d events by %d", len(seen), limit)
		}
		for n, e := range seen {
			at := start.Add(time.Duration(n) * time.Second)
			if e.Object != "batch.event" || e.Kind != "claimed" || e.BatchID != b.ID || e.Attempt != n || e.Owner != "worker" || e.CreatedAt != at.Unix() ||
				e.Time != at.Format(time.RFC3339Nano) || (e.Part == nil) != (n == 0) || n > 0 && *e.Part != n-1 {
				t.Errorf("event %d: %+v", n, e)
			}
		}
	}
	var none struct{ Data []wireEvent }
	other := h.running("acme", 0, nil)
	a := h.do(call{method: "GET", path: "/v1/batches/" + other.ID + "/events", as: "acme read"})
	if a.ok(&none); none.Data == nil || len(none.Data) != 0 {
		t.Errorf("%s", a.Body)
	}
	for query, c := range map[string]struct{ code, param string }{
		"?limit=1001": {"invalid_limit", "limit"}, "?order=desc": {"invalid_order", "order"}, "?after=" + strings.Repeat("a", 300): {"invalid_cursor", "after"},
	} {
		h.do(call{method: "GET", path: path + query, as: "acme read"}).refused(http.StatusBadRequest, c.code, c.param)
	}
	h.do(call{method: "GET", path: path, as: "other both"}).refused(404, "batch_not_found", "batch_id")
	h.do(call{method: "GET", path: "/v1/batches/batch_none/events", as: "acme read"}).refused(404, "batch_not_found", "batch_id")
}
