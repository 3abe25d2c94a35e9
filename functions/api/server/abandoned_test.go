package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// reclaimed is what a round of the reaper over acme did.
func (h *house) reclaimed() (got struct{ Resubmitted, Refused, Failed int }) {
	h.t.Helper()
	h.do(call{method: "POST", path: "/v1/admin/reclaim", as: "acme admin"}).ok(&got)
	return got
}

// The server dies at every call of a create, before it takes effect or after, and
// its client is gone for good. Once the claim is stale the reaper starts the batch,
// once; another round, and the client, should it ever come back, find the same.
func TestReaperStartsWhatItsClientLeft(t *testing.T) {
	clean := newHouse(t)
	c := createCall(clean.file()).keyed("order 7")
	clean.restart(memory.NewFaults())
	want := clean.do(c).id()
	resubmitted := 0
	for _, p := range clean.faults.Calls() {
		for when, arm := range map[string]func(*memory.Faults, string, int, memory.Hook){
			"before": (*memory.Faults).Before, "after": (*memory.Faults).After,
		} {
			t.Run(p.String()+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					c := createCall(h.file()).keyed("order 7")
					f := memory.NewFaults()
					arm(f, p.Op, p.N, f.Crash)
					h.restart(f)
					h.do(c)
					row, claimed := h.mem.Table.Row("acme", "order 7")
					h.restart(memory.NewFaults())
					h.now = start.Add(bridge.DefaultClaimStale + time.Second)
					first, second := h.reclaimed(), h.reclaimed()
					if first.Failed+first.Refused+second.Failed+second.Refused+second.Resubmitted > 0 || (first.Resubmitted == 1) != (row.State == bridge.Reserved) {
						t.Errorf("of a row %q, rounds did %+v and %+v", row.State, first, second)
					}
					resubmitted += first.Resubmitted
					if claimed {
						h.wants("acme", 1)
						if row, _ := h.mem.Table.Row("acme", "order 7"); row.State != bridge.Confirmed || row.Job != want {
							t.Errorf("row %+v", row)
						}
					} else {
						h.wants("acme", 0)
					}
					h.now = h.now.Add(24 * time.Hour)
					if got := h.do(c).id(); got != want {
						t.Errorf("the client that comes back finds %s, want %s", got, want)
					}
					h.wants("acme", 1)
				})
			})
		}
	}
	if resubmitted < 8 {
		t.Errorf("only %d crashes left a claim", resubmitted)
	}
}

// What the reaper can't start is refused as it would have been, the key is free
// again, and the batch that never was has its reason.
func TestReaperRefusesWhatItsClientLeft(t *testing.T) {
	h := newHouse(t)
	c := createCall("file-none").keyed("order 7")
	f := memory.NewFaults()
	f.After("Bridge.Claim", 1, f.Crash)
	h.restart(f)
	h.do(c)
	h.restart(memory.NewFaults())
	h.now = start.Add(bridge.DefaultClaimStale + time.Second)
	if got := h.reclaimed(); got.Refused != 1 || got.Resubmitted+got.Failed > 0 {
		t.Errorf("%+v", got)
	}
	var events struct {
		Data []struct{ Kind, Reason string }
	}
	h.do(call{method: "GET", path: "/v1/batches/" + bridge.BatchID("acme", "order 7") + "/events", as: "acme read"}).ok(&events)
	if len(events.Data) != 1 || events.Data[0].Kind != "refused" || events.Data[0].Reason == "" {
		t.Errorf("%+v", events)
	}
	h.do(createCall(h.file()).keyed("order 7")).id()
	h.wants("acme", 1)
}
