package server_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/bridge"
	"holdfast/internal/config"
	"holdfast/internal/memory"
)

func (c call) with(name, value string) call {
	header := map[string]string{name: value}
	for k, v := range c.header {
		header[k] = v
	}
	c.header = header
	return c
}

func (c call) keyed(key string) call { return c.with("Idempotency-Key", key) }

func (c call) resent(n int) call { return c.with("X-Stainless-Retry-Count", strconv.Itoa(n)) }

// window is c asking for another thing.
func (c call) window(w string) call {
	c.body = strings.Replace(c.body, `"24h"`, `"`+w+`"`, 1)
	return c
}

// id is the batch that a 200 answers with.
func (a answer) id() string {
	a.t.Helper()
	var b wireBatch
	a.ok(&b)
	return b.ID
}

// restart is another process over the same stores, with f's faults.
func (h *house) restart(f *memory.Faults) {
	h.faults = f
	h.build()
}

// count is how many batches the tenant has, and how many executions there are.
func (h *house) count(tenant string) (batches, executions int) {
	h.t.Helper()
	page, _, err := h.mem.Table.Batches.List(h.t.Context(), tenant, "", 100)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(page), len(h.mem.Workflow.Executions())
}

func (h *house) wants(tenant string, n int) {
	h.t.Helper()
	if b, e := h.count(tenant); b != n || e != n {
		h.t.Errorf("%d batches and %d executions, want %d", b, e, n)
	}
}

func TestClaimStaleOfTheSettings(t *testing.T) {
	if got := config.Default().ClaimStale; got != bridge.DefaultClaimStale {
		t.Errorf("settings say %s, the bridge %s", got, bridge.DefaultClaimStale)
	}
	var s string
	for _, r := range config.Rows(config.Default()) {
		if r.Name == "HOLDFAST_CLAIM_STALE" {
			s = r.Floor
		}
	}
	if s != bridge.MinClaimStale.String() {
		t.Errorf("the settings' floor is %s, the bridge's %s", s, bridge.MinClaimStale)
	}
}

func TestOneKeyAtOnce(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file()).keyed("order 7")
	ids := make([]string, 64)
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() { ids[i] = h.do(c).id() })
	}
	wg.Wait()
	if slices.Sort(ids); ids[0] != ids[63] {
		t.Errorf("%v", slices.Compact(ids))
	}
	h.wants("acme", 1)
}

func TestKeyBounds(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file())
	for _, key := range []string{"a", " ", "~!#", strings.Repeat("k", 255), "a,b", "../BR#x", `{"a":"b"}`} {
		h.do(c.keyed(key)).id()
	}
	for _, key := range []string{"", strings.Repeat("k", 256), "é", "a\tb", "a\x00b", "a\x7fb", "a\r\nb", "日本", "\xff"} {
		h.do(c.keyed(key)).refused(400, "invalid_idempotency_key", "Idempotency-Key")
	}
	h.wants("acme", 7)
}

func TestKeyOfAnotherPrincipal(t *testing.T) {
	h := newHouse(t)
	c := createCall(h.file()).keyed("order 7")
	h.do(c).id()
	c.as = "acme both"
	r := h.do(c)
	r.refused(400, "idempotency_conflict", "Idempotency-Key") // its lines would count for somebody else
	if !strings.Contains(r.Body.String(), "the submitter counts, too") {
		t.Errorf("the submitter isn't named as what differs: %s", r.Body)
	}
	h.wants("acme", 1)
}

// How its JSON is written makes no request another.
func TestSameRequestOtherBytes(t *testing.T) {
	h := newHouse(t)
	file := h.file()
	first := createCall(file).keyed("order 7")
	second := first
	second.body = `{ "completion_window":"24h", "endpoint":"\/v1/chat/completions", "x":1, "metadata":null, "input_file_id":"` + file + `" }`
	if a, b := h.do(first).id(), h.do(second).id(); a != b {
		t.Errorf("%s, %s", a, b)
	}
}

// What can't be a file's id is refused before it is claimed: the claim would hold
// it, and it can be larger than an item.
func TestNothingIsClaimedForWhatIsNoID(t *testing.T) {
	h := newHouse(t)
	h.do(createCall(strings.Repeat("a", 900_000)).keyed("order 7")).refused(400, "file_not_found", "input_file_id")
	for _, c := range h.faults.Calls() {
		if strings.HasPrefix(c.Op, "Bridge.") || strings.HasPrefix(c.Op, "Sends.") {
			t.Errorf("%v was called", c)
		}
	}
}

func TestRefusalFreesTheKey(t *testing.T) {
	h := newHouse(t)
	h.do(createCall("file-none").keyed("order 7")).refused(400, "file_not_found", "input_file_id")
	h.do(createCall("file-none").keyed("order 7").window("3h")).refused(400, "invalid_completion_window", "completion_window")
	if row, there := h.mem.Table.Row("acme", "order 7"); there {
		t.Errorf("a refusal leaves %+v", row)
	}
	file := h.file()
	if a, b := h.do(createCall(file).keyed("order 7")).id(), h.do(createCall(file).keyed("order 7")).id(); a != b {
		t.Errorf("%s, %s", a, b)
	}
	h.wants("acme", 1)
}

// The process dies at every call of a create, before it takes effect or after. The
// same request comes again, at once and when the claim is stale: one batch, and it
// runs; whoever got an answer got the same.
func TestKeyOutlivesEveryCrash(t *testing.T) {
	clean := newHouse(t)
	c := createCall(clean.file()).keyed("order 7")
	clean.restart(memory.NewFaults())
	clean.do(c).id()
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
					first := h.do(c)
					h.restart(memory.NewFaults())
					h.now = start.Add(time.Second)
					second := h.do(c)
					if second.Code != http.StatusOK {
						second.inProgress()
						if b, _ := h.count("acme"); b != 0 {
							t.Error("there is a batch, and it isn't found")
						}
					}
					h.now = start.Add(bridge.DefaultClaimStale + time.Second)
					third := h.do(c).id()
					h.wants("acme", 1)
					for i, a := range []answer{first, second} {
						if a.Code == http.StatusOK && a.id() != third {
							t.Errorf("answer %d: %s, then %s", i+1, a.id(), third)
						}
					}
					if row, _ := h.mem.Table.Row("acme", "order 7"); row.State != bridge.Confirmed || row.Job != third {
						t.Errorf("row %+v", row)
					}
				})
			})
		}
	}
}

// inProgress checks the one refusal that asks to come again.
func (a answer) inProgress() {
	a.t.Helper()
	ms, _ := strconv.Atoi(a.Header().Get("Retry-After-Ms"))
	if a.Code != http.StatusConflict || !strings.Contains(a.Body.String(), `"code":"idempotency_in_progress"`) ||
		a.Header().Get("X-Should-Retry") != "true" || ms < 1 || ms > 60_000 {
		a.t.Errorf("%d %v %s", a.Code, a.Header(), a.Body)
	}
}

// The first POST is still at work when the second arrives: it waits for the batch;
// and if it waits in vain, says when to come again.
func TestKeyWhoseFirstRequestIsStillRunning(t *testing.T) {
	for op, found := range map[string]bool{
		"Files.Get": false, "Batches.Create": false, // nothing is recorded yet
		"Workflow.Start": true, "Bridge.Confirm": true,
	} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				c := createCall(h.file()).keyed("order 7")
				f, gate := memory.NewFaults(), memory.NewGate()
				f.Before(op, 1, gate.Wait)
				h.restart(f)
				first := make(chan string)
				go func() { first <- h.do(c).id() }()
				<-gate.Reached()
				h.restart(memory.NewFaults())
				late := h.do(c) // waits as long as it may
				if !found {
					late.inProgress()
				}
				second := make(chan string)
				go func() { second <- h.do(c).id() }()
				synctest.Wait()
				gate.Open()
				a, b := <-first, <-second
				if a != b || found && late.id() != a {
					t.Errorf("%s, %s, %s", a, b, late.Body)
				}
				h.wants("acme", 1)
			})
		})
	}
}

// TestCallsOfACreate holds, and prints, what a create costs.
func TestCallsOfACreate(t *testing.T) {
	for _, c := range []struct {
		name  string
		again bool
		call  func(call) call
		want  string
	}{
		{"without a key", false, func(c call) call { return c.resent(0) }, "Sends.Record Files.Get Batches.Create Workflow.Start"},
		{"without a key, the same again", true, func(c call) call { return c.resent(0) }, "Sends.Record Sends.Record Files.Get Batches.Create Workflow.Start"},
		{"without a key, sent again", true, func(c call) call { return c.resent(1) }, "Sends.Last Files.Get Batches.Create Batches.Get Workflow.Start"},
		{"with a key", false, func(c call) call { return c.keyed("k") }, "Bridge.Claim Files.Get Batches.Create Workflow.Start Bridge.Confirm Batches.Get"},
		{"with a key, again", true, func(c call) call { return c.keyed("k") }, "Bridge.Claim Batches.Get"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHouse(t)
			create := createCall(h.file())
			if c.again {
				first := create.resent(0)
				if c.call(create).header["Idempotency-Key"] != "" {
					first = c.call(create)
				}
				h.do(first).id()
			}
			h.do(call{method: "GET", path: "/v1/batches", as: "acme submit"}) // its key is known from here on
			before := len(h.faults.Calls())
			h.do(c.call(create)).id()
			var ops []string
			table := 0
			for _, p := range h.faults.Calls()[before:] {
				ops = append(ops, p.Op)
				if !strings.HasPrefix(p.Op, "Workflow.") {
					table++
				}
			}
			if got := strings.Join(ops, " "); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			t.Logf("a create %s: %d table calls: %s", c.name, table, strings.Join(ops, ", "))
		})
	}
}
