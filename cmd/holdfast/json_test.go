package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"holdfast/internal/batch"
)

// Every test of this package that says --json has run made sure that there is one
// object on stdout, whatever came of the command: see house.runIn.

type fault struct {
	Error struct{ Message, Hint string }
}

// commands are all of the program's, as they are called.
func commands() (all [][]string) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		all = append(all, strings.Fields(c.CommandPath())[1:])
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(new(app).root())
	return all
}

// Whichever command is called wrongly, what was wrong is one object, also where the
// flags were not read as far as --json.
func TestUsageErrorsInJSON(t *testing.T) {
	h := newHouse(t)
	all := commands()
	if len(all) < 25 {
		t.Errorf("%d commands: %v", len(all), all)
	}
	for _, path := range all {
		for _, args := range [][]string{{"--nope", "--json"}, {"--json", "--nope"}, {"--json=1", "--nope"}} {
			var out fault
			h.run(append(append([]string{}, path...), args...)...).is(2, "--nope", "--help").object(&out)
			if !strings.Contains(out.Error.Message, "--nope") || !strings.HasPrefix(out.Error.Hint, "See holdfast") {
				t.Errorf("%v %v: %+v", path, args, out)
			}
		}
		for _, args := range [][]string{{"--nope", "--json=false"}, {"--nope"}, {"--nope", "--", "--json=true"}} {
			if r := h.run(append(append([]string{}, path...), args...)...).is(2, "--nope"); r.stdout != "" {
				t.Errorf("%v %v: stdout %q", path, args, r.stdout)
			}
		}
	}
}

// What only has commands prints its help, which is no JSON.
func TestGroupsInJSON(t *testing.T) {
	h := newHouse(t)
	groups := 0
	for _, path := range [][]string{nil, {"dead"}, {"key"}, {"tenant"}, {"tenant", "drop"}} {
		groups++
		if r := h.run(path...).is(0); !strings.Contains(r.stdout, "Usage:") {
			t.Errorf("%v: %q", path, r.stdout)
		}
		var out fault
		h.run(append(path, "--json")...).is(2, "name a command of holdfast").object(&out)
		if !strings.Contains(out.Error.Message, ": ") || strings.Contains(out.Error.Message, "help") {
			t.Errorf("%v: %+v", path, out)
		}
	}
	for _, path := range commands() {
		c, _, err := new(app).root().Find(path)
		if err == nil && c.HasSubCommands() && c.Name() != "receipts" {
			groups--
		}
	}
	if groups != 0 {
		t.Errorf("%d groups more or less than were tried", groups)
	}
}

// Those that end with 1 after they have printed what there is say so once.
func TestFailuresAfterTheObject(t *testing.T) {
	h := newHouse(t)
	ended := h.ended(batch.Cancelled).ID
	files := []string{"--output", filepath.Join(t.TempDir(), "o"), "--errors", filepath.Join(t.TempDir(), "e")}
	bare := batch.Batch{Tenant: "acme", ID: "batch_bare00000000000000001", Endpoint: "/v1/embeddings", CreatedAt: time.Now(), Status: batch.Expired}
	h.mem.Table.SeedBatch(bare)
	h.before = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v1/admin/reclaim" {
			return false
		}
		w.Header().Set("X-Request-Id", "r")
		io.WriteString(w, `{"reaped":1,"failed":2}`)
		return true
	}
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"status", ended}, ""},
		{append([]string{"results", ended}, files...), "is cancelled; what it had finished was fetched"},
		{append([]string{"results", bare.ID}, files...), "is expired; it has no results"},
		{[]string{"reclaim"}, "2 items could not be dealt with"},
	} {
		var out map[string]any
		h.run(append(c.args, "--json")...).is(1, c.say).object(&out)
		if out["error"] != nil || len(out) == 0 {
			t.Errorf("%v: %v", c.args, out)
		}
	}
	story := newHouse(t)
	s := newStory()
	s.output = strings.Replace(s.output, "42", "43", 1)
	var out map[string]any
	if story.run("receipts", "verify", story.tell(s), "--json").is(1, "do NOT agree").object(&out); out["ok"] != false {
		t.Errorf("%v", out)
	}
}
