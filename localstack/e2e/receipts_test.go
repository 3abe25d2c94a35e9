package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/openai"
)

// verified fetches the receipts of a batch that is over, and lets the command line
// check them; then it spoils copies in every way that must be noticed.
func (c *client) verified(t *testing.T, b openai.Batch) {
	t.Helper()
	as, dir := []string{"HOLDFAST_API_KEY=" + c.key}, t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if out, said, code := cli(t, as, "receipts", b.ID, "--output", at("receipts")); code != 0 {
		t.Fatalf("receipts: exit %d, %s%s", code, out, said)
	}
	out, said, code := cli(t, as, "receipts", "verify", b.ID, "--json")
	var told struct {
		OK                      bool
		Tenant                  string
		OnBehalfOf              string `json:"on_behalf_of"`
		Lines, Receipts, Unsent int
		Requests                bool `json:"request_hashes_checked"`
	}
	receipts := read(t, at("receipts"))
	sent := bytes.Count(receipts, []byte("\n"))
	if err := json.Unmarshal(out, &told); err != nil || code != 0 || !told.OK || !told.Requests || told.Tenant != c.tenant || told.OnBehalfOf != submitter ||
		told.Lines != b.RequestCounts.Total || told.Receipts != sent || told.Unsent != told.Lines-sent || sent == 0 {
		t.Errorf("verify: exit %d, %v, %s%s", code, err, out, said)
	}
	files := map[string][]byte{"receipts": receipts, "output": nil, "errors": nil}
	if b.OutputFileID != nil {
		files["output"] = c.content(t, *b.OutputFileID)
	}
	if b.ErrorFileID != nil {
		files["errors"] = c.content(t, *b.ErrorFileID)
	}
	unsent := 0
	for line := range bytes.Lines(files["errors"]) {
		if r, err := openai.ParseResultLine(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
			t.Errorf("%v: %s", err, line)
		} else if openai.Unsent(r.Code) {
			unsent++
		}
	}
	if sent != told.Lines-unsent {
		t.Errorf("%d receipts of %d lines, %d of which say that they have none", sent, told.Lines, unsent)
	}
	for name, data := range files {
		if err := os.WriteFile(at(name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(change string, want int) {
		t.Helper()
		out, said, code := cli(t, nil, "receipts", "verify", "--receipts", at("receipts"), "--output", at("output"), "--errors", at("errors"))
		if code != want || want == 1 && !strings.Contains(string(said), "NOT agree") {
			t.Errorf("%s: exit %d, want %d: %s%s", change, code, want, out, said)
		}
	}
	check("as they are", 0)
	lines := bytes.SplitAfter(receipts, []byte("\n"))
	swapped := slices.Clone(lines)
	swapped[0], swapped[1] = swapped[1], swapped[0]
	for change, spoilt := range map[string]struct {
		name string
		data []byte
	}{
		"one receipt less":     {"receipts", bytes.Join(lines[1:], nil)},
		"one receipt twice":    {"receipts", append(slices.Clone(lines[0]), receipts...)},
		"two receipts swapped": {"receipts", bytes.Join(swapped, nil)},
		"another submitter":    {"receipts", bytes.Replace(receipts, []byte(submitter), []byte("nobody@example.com"), 1)},
		"another custom_id":    {"receipts", bytes.Replace(receipts, []byte(`"custom_id":"`), []byte(`"custom_id":"x`), 1)},
		"another batch":        {"receipts", bytes.Replace(receipts, []byte(b.ID), []byte("batch_00000000000000000000000000"), 1)},
		"another status":       {"receipts", bytes.Replace(receipts, []byte(`"status":200`), []byte(`"status":201`), 1)},
		"another reply":        {"output", bytes.Replace(files["output"], []byte("You sent "), []byte("You meant "), 1)},
		"a result less":        {"output", files["output"][bytes.IndexByte(files["output"], '\n')+1:]},
		"no output file":       {"output", nil},
	} {
		if bytes.Equal(spoilt.data, files[spoilt.name]) {
			t.Errorf("%s: nothing was changed", change)
		}
		if err := os.WriteFile(at(spoilt.name), spoilt.data, 0o600); err != nil {
			t.Fatal(err)
		}
		check(change, 1)
		if err := os.WriteFile(at(spoilt.name), files[spoilt.name], 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// members are those of a JSON object, as they are written.
func members(t *testing.T, object []byte) map[string]string {
	t.Helper()
	var m map[string]json.RawMessage
	if err := json.Unmarshal(object, &m); err != nil {
		t.Fatalf("%v: %s", err, object)
	}
	texts := map[string]string{}
	for name, v := range m {
		texts[name] = string(v)
	}
	return texts
}

// The lines of a batch go through our worker, and meanwhile through the gateway by a
// worker elsewhere: the receipts agree in every member that both have.
func TestBothPathsAgreeDeployed(t *testing.T) {
	t.Parallel()
	e := newEstate(t)
	c := &client{e.base, e.tenant, newKey(t, e.tenant, "submit,read"), e.http}
	fleet := newTenant(t, "batch_replay")
	var reqs []request
	for i, model := range []string{"sim", "sim-400", "sim-nonjson", "sim-500", "sim-large-100000", "", `s\u0069m`, "sim-slow-6000"} {
		body := fmt.Sprintf(`{ "model":"%s", "n":1.0, "messages":[{"role":"user","content":"%d: é \u00e9"}] }`, model, i)
		if model == "" {
			body = `{"messages":[]}`
		}
		reqs = append(reqs, request{rawID: fmt.Sprintf(`"line \u002d %d"`, i), body: body, model: model})
	}
	id := c.create(t, c.upload(t, "in.jsonl", file(reqs)).ID, "/v1/chat/completions").ID
	poll(t, 30*time.Second, func() bool { return modelAccount(t, id).InFlight > 0 }, func() string { return "no line is sent" })
	for i, r := range reqs[:len(reqs)-1] {
		if a := fleet.gate(t, "/v1/chat/completions", r.body, replays(e.tenant, id, fmt.Sprint(i))); a.status == 403 || a.status == 503 {
			t.Errorf("line %d: %d %s", i, a.status, a.body)
		}
	}
	b := c.wait(t, id, time.Minute)
	if b.Status != openai.StatusCompleted || b.RequestCounts != (openai.RequestCounts{Total: 8, Completed: 5, Failed: 3}) {
		t.Fatalf("%s, %+v", b.Status, b.RequestCounts)
	}
	ours := map[string]map[string]string{}
	receipts, said, code := cli(t, []string{"HOLDFAST_API_KEY=" + c.key}, "receipts", id)
	for line := range bytes.Lines(receipts) {
		m := members(t, line)
		ours[m["line"]] = m
	}
	if len(ours) != len(reqs) || code != 0 {
		t.Fatalf("receipts: exit %d, %d lines, %s", code, len(ours), said)
	}
	both := map[string]bool{}
	theirs := e.shelf(t, e.tenant, id)
	for _, r := range theirs {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		theirs, ours := members(t, text), ours[fmt.Sprint(*r.Line)]
		for name, got := range theirs {
			if want, there := ours[name]; there && name != "time" {
				both[name] = true
				if got != want {
					t.Errorf("line %d: %s is %s by the gateway, %s by the worker", *r.Line, name, got, want)
				}
			}
		}
		for _, name := range []string{"model", "usage", "reply_sha256"} { // which may be absent
			if (theirs[name] == "") != (ours[name] == "") {
				t.Errorf("line %d: %s is %q by the gateway, %q by the worker", *r.Line, name, theirs[name], ours[name])
			}
		}
	}
	want := []string{"batch_id", "line", "model", "on_behalf_of", "reply_sha256", "request_sha256", "status", "tenant", "usage"}
	if got := slices.Sorted(maps.Keys(both)); len(theirs) != len(reqs)-1 || !slices.Equal(got, want) {
		t.Errorf("%d receipts of the gateway; both know %v, want %v", len(theirs), got, want)
	}
	c.verified(t, b)
	if a := fleet.gate(t, "/v1/chat/completions", reqs[0].body, replays(e.tenant, id, "0")); a.code != "batch_replay_not_authorized" && time.Since(time.Unix(*b.CompletedAt, 0)) > 6*time.Second {
		t.Errorf("when it is over: %d %s", a.status, a.body)
	}
}

// A batch of which nothing went wrong has nothing wrong in its receipts.
func TestReceiptsOfACompletedBatch(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	b := c.wait(t, c.create(t, c.upload(t, "in.jsonl", lines(120, "/v1/completions")).ID, "/v1/completions").ID, time.Minute)
	c.verified(t, b)
}
