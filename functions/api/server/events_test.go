package server_test

import (
	"strings"
	"testing"
)

// What can't be a batch's id is not looked up: the table would refuse a key of that
// length, and that is no trouble of the table's.
func TestEventsOfNoID(t *testing.T) {
	h := newHouse(t)
	for _, path := range []string{"/events", "/receipts", "/receipts/gateway", ""} {
		for _, id := range []string{"x", "batch_", "batch_" + strings.Repeat("a", 3000), "batch_%00aaaaaaaaaaaaaaaaaaaaaaaa"} {
			before := len(h.faults.Calls())
			h.do(call{method: "GET", path: "/v1/batches/" + id + path, as: "acme read"}).refused(404, "batch_not_found", "batch_id")
			for _, c := range h.faults.Calls()[before:] {
				if !strings.HasPrefix(c.Op, "Keys.") && !strings.HasPrefix(c.Op, "Tenants.") {
					t.Errorf("GET %.20s%s: %s was asked", id, path, c.Op)
				}
			}
		}
	}
}
