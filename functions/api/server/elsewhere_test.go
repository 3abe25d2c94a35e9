package server_test

import (
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/memory"
)

// A key that stands for another service's job, which came by another door: in progress
// as long as nobody knows, and then a plain no, since coming again makes no batch of it.
func TestKeyOfAnotherServicesJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := newHouse(t), memory.NewFaults()
		c := createCall(h.file()).keyed("order 7")
		f.After("Bridge.Claim", 1, f.Crash)
		h.restart(f)
		h.do(c)
		h.restart(memory.NewFaults())
		row, _ := h.mem.Table.Row("acme", "order 7")
		if err := h.mem.Table.Bridge.Release(t.Context(), row.Key, row.Token); err != nil {
			t.Fatal(err)
		}
		row.Request.Service = "jobs"
		if err := h.mem.Table.Bridge.Claim(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		for _, age := range []time.Duration{0, time.Hour} {
			h.now = start.Add(age)
			h.do(c).inProgress()
		}
		if got := h.reclaimed(); got.Resubmitted+got.Refused+got.Failed > 0 {
			t.Errorf("%+v", got)
		}
		if now, _ := h.mem.Table.Row("acme", "order 7"); now.Ver != row.Ver || now.Token != row.Token {
			t.Errorf("%+v is taken from those who can submit it: %+v", row, now)
		}
		if err := h.mem.Table.Bridge.Confirm(t.Context(), row.Key, row.Token, "job-17", h.now.Add(bridge.Kept)); err != nil {
			t.Fatal(err)
		}
		h.do(c).refused(400, "idempotency_key_in_use", "Idempotency-Key")
		h.wants("acme", 0)
	})
}
