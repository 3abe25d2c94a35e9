package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
)

func env(m map[string]string) func(string) string {
	return func(name string) string { return m[name] }
}

// faults flattens the joined error.
func faults(t *testing.T, err error) (values []*Fault, broken []*BrokenRelation) {
	t.Helper()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("error %v (%T) joins nothing", err, err)
	}
	for _, e := range joined.Unwrap() {
		if f, ok := errors.AsType[*Fault](e); ok {
			values = append(values, f)
		} else if b, ok := errors.AsType[*BrokenRelation](e); ok {
			broken = append(broken, b)
		} else {
			t.Fatalf("unexpected error %v (%T)", e, e)
		}
	}
	return values, broken
}

// The numbers of the design, written a second time on purpose: a default that
// changes must be changed here too.
func TestDefaults(t *testing.T) {
	got := Default()
	want := Settings{
		FileLines: 50_000, FileBytes: 200_000_000,
		LineBytes: 4 << 20, Nesting: 1_000, ReplyBytes: 16 << 20, DirectBytes: 4 << 20,
		PartLines: 500, CheckpointLines: 100, CheckpointEvery: 15 * time.Second, CheckpointBytes: 8 << 20,
		Concurrency: 32, ConcurrencyFloor: 1, ConcurrencyCeiling: 128, MaxConcurrency: 20, WorkMemory: 512,
		Lease: 2 * time.Minute, Heartbeat: 30 * time.Second, Skew: 5 * time.Second,
		LineTimeout: 2 * time.Minute, FunctionTimeout: 15 * time.Minute, Margin: time.Minute,
		LineTries: 5, RetryBudget: 2 * time.Minute, LongWait: 10 * time.Second,
		MaxAttempts: 3, DeadGrace: time.Hour, Drain: 2 * time.Minute, Overdue: 2 * time.Hour,
		ClaimStale: 3 * time.Minute, WrongKeys: 10, SubmitTimeout: 20 * time.Second, IngestConcurrency: 10, IngestReceives: 200,
		Receives: 1_000, Retention: 14 * 24 * time.Hour,
		WaitHeartbeat: 6 * time.Hour, WaitTimeout: 48 * time.Hour,
		FileExpiry: 30 * 24 * time.Hour, UploadExpiry: 24 * time.Hour,
		Endpoints: []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"},
		Windows:   []string{"24h", "1h"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults\n got %+v\nwant %+v", got, want)
	}
	if got.InFlight() != 20*128 {
		t.Errorf("in flight %d, want 2560", got.InFlight())
	}
}

func TestEveryFieldHasARow(t *testing.T) {
	if rows, fields := len(table), reflect.TypeFor[Settings]().NumField(); rows != fields {
		t.Errorf("%d rows for %d fields", rows, fields)
	}
	seen := map[string]bool{}
	for _, r := range table {
		if seen[r.name] || !strings.HasPrefix(r.name, "HOLDFAST_") || r.why == "" || r.unit.name == "" {
			t.Errorf("row %q is doubled, misnamed, or lacks its unit or reason", r.name)
		}
		seen[r.name] = true
	}
	for _, rel := range relations {
		for _, name := range rel.between {
			if !seen[name] {
				t.Errorf("relation %q names %s, which is no setting", rel.rule, name)
			}
		}
	}
}

// Every number's floor and ceiling is taken, one step beyond is refused, and so
// is what is no number at all.
func TestBounds(t *testing.T) {
	for _, r := range table {
		if r.isList() || r.fallsBack() {
			continue
		}
		step := int64(1)
		if r.unit.whole {
			step = second
		}
		for _, c := range []struct {
			raw    string
			refuse bool
		}{
			{r.unit.format(r.floor), false},
			{r.unit.format(r.ceiling), false},
			{r.unit.format(r.floor - step), true},
			{r.unit.format(r.ceiling + step), true},
			{"many", true},
			{" ", true},
			{"-1", true},
			{"9999999999999999999999", true},
		} {
			t.Run(r.name+"="+c.raw, func(t *testing.T) {
				_, err := Parse(env(map[string]string{r.name: c.raw}))
				var values []*Fault
				if err != nil {
					values, _ = faults(t, err) // a value on its bound may break a relation
				}
				if !c.refuse {
					if len(values) != 0 {
						t.Fatalf("refused: %v", values[0])
					}
					return
				}
				if len(values) != 1 || values[0].Name != r.name || values[0].Value != c.raw {
					t.Fatalf("faults %v, want one for this variable", values)
				}
				for _, part := range []string{r.name, c.raw, r.unit.format(r.floor), r.unit.format(r.ceiling)} {
					if !strings.Contains(values[0].Error(), part) {
						t.Errorf("message %q doesn't say %q", values[0], part)
					}
				}
			})
		}
	}
}

func TestWholeSeconds(t *testing.T) {
	for _, name := range []string{"HOLDFAST_LEASE", "HOLDFAST_FUNCTION_TIMEOUT", "HOLDFAST_RETENTION", "HOLDFAST_WAIT_HEARTBEAT", "HOLDFAST_WAIT_TIMEOUT", "HOLDFAST_SUBMIT_TIMEOUT"} {
		_, err := Parse(env(map[string]string{name: "600500ms"}))
		if err == nil || !strings.Contains(err.Error(), name+"=600500ms: must be a duration in whole seconds") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLists(t *testing.T) {
	for _, c := range []struct{ name, raw, want string }{
		{"HOLDFAST_WINDOWS", "15s,1h,24h", ""},
		{"HOLDFAST_WINDOWS", "24h, 1h", ""},
		{"HOLDFAST_WINDOWS", "24h,soon", `"soon" is no duration`},
		{"HOLDFAST_WINDOWS", "24h,", `"" is no duration`},
		{"HOLDFAST_WINDOWS", "0s", `"0s" is out of bounds`},
		{"HOLDFAST_WINDOWS", "169h", `"169h" is out of bounds`},
		{"HOLDFAST_WINDOWS", "1500ms", `"1500ms" isn't in whole seconds`},
		{"HOLDFAST_WINDOWS", "1h,1h", `"1h" is there twice`},
		{"HOLDFAST_MODELS", "gpt-4.1-mini, meta-llama/Llama-3.3-70B@fp8:free", ""},
		{"HOLDFAST_MODELS", "a,,b", `"" isn't of 1 to 200 bytes`},
		{"HOLDFAST_MODELS", "a b", `"a b" isn't a plain name`},
		{"HOLDFAST_MODELS", "/a", `"/a" isn't a plain path`},
		{"HOLDFAST_MODELS", "a/../b", `"a/../b" isn't a plain path`},
		{"HOLDFAST_ENDPOINTS", "/v1/responses", ""},
		{"HOLDFAST_ENDPOINTS", "/v1/", "doesn't begin with /v1/"},
		{"HOLDFAST_ENDPOINTS", "responses", "doesn't begin with /v1/"},
		{"HOLDFAST_ENDPOINTS", "/v1/a?b", "isn't a plain path"},
		{"HOLDFAST_ENDPOINTS", "/v1/../admin", "isn't a plain path"},
		{"HOLDFAST_ENDPOINTS", "/v1//admin", "isn't a plain path"},
	} {
		_, err := Parse(env(map[string]string{c.name: c.raw}))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s=%s refused: %v", c.name, c.raw, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.name)):
			t.Errorf("%s=%s: %v, want %q", c.name, c.raw, err, c.want)
		}
	}
}

// Each relation has one environment, within every bound, that breaks it and
// nothing else, and one at its edge that doesn't.
func TestRelations(t *testing.T) {
	type vars = map[string]string
	for _, c := range []struct {
		rule          string
		breaks, holds vars
	}{
		{"the lease must be at least 4 heartbeats",
			vars{"HOLDFAST_LEASE": "40s", "HOLDFAST_HEARTBEAT": "10001ms"},
			vars{"HOLDFAST_LEASE": "40s", "HOLDFAST_HEARTBEAT": "10s"}},
		{"the lease and the skew margin together",
			vars{"HOLDFAST_LEASE": "12h", "HOLDFAST_SKEW": "1s"},
			vars{"HOLDFAST_LEASE": "43199s", "HOLDFAST_SKEW": "1s"}},
		{"the line timeout and the margin together",
			vars{"HOLDFAST_LINE_TIMEOUT": "14m", "HOLDFAST_MARGIN": "60s"},
			vars{"HOLDFAST_LINE_TIMEOUT": "839s", "HOLDFAST_MARGIN": "60s"}},
		{"the longest wait inside a worker",
			vars{"HOLDFAST_LONG_WAIT": "14m", "HOLDFAST_MARGIN": "60s"},
			vars{"HOLDFAST_LONG_WAIT": "839s", "HOLDFAST_MARGIN": "60s"}},
		{"a part must need at most 100 checkpoints",
			vars{"HOLDFAST_PART_LINES": "501", "HOLDFAST_CHECKPOINT_LINES": "5"},
			vars{"HOLDFAST_PART_LINES": "500", "HOLDFAST_CHECKPOINT_LINES": "5"}},
		// 200 MB are 2 more.
		{"a file must be cut into at most 80,000 parts",
			vars{"HOLDFAST_FILE_LINES": "7999900", "HOLDFAST_PART_LINES": "100"},
			vars{"HOLDFAST_FILE_LINES": "7999800", "HOLDFAST_PART_LINES": "100"}},
		{"a line must not be allowed to be larger",
			vars{"HOLDFAST_FILE_BYTES": "5000", "HOLDFAST_LINE_BYTES": "5001", "HOLDFAST_DIRECT_BYTES": "5000"},
			vars{"HOLDFAST_FILE_BYTES": "5000", "HOLDFAST_LINE_BYTES": "5000", "HOLDFAST_DIRECT_BYTES": "5000"}},
		{"a direct upload must not be allowed to be larger",
			vars{"HOLDFAST_FILE_BYTES": "5000", "HOLDFAST_LINE_BYTES": "5000", "HOLDFAST_DIRECT_BYTES": "5001"},
			vars{"HOLDFAST_FILE_BYTES": "5000", "HOLDFAST_LINE_BYTES": "5000", "HOLDFAST_DIRECT_BYTES": "5000"}},
		{"the concurrency must lie between",
			vars{"HOLDFAST_CONCURRENCY": "8", "HOLDFAST_CONCURRENCY_FLOOR": "9"},
			vars{"HOLDFAST_CONCURRENCY": "8", "HOLDFAST_CONCURRENCY_FLOOR": "8"}},
		{"the concurrency must lie between its floor and its ceiling",
			vars{"HOLDFAST_CONCURRENCY_CEILING": "31"},
			vars{"HOLDFAST_CONCURRENCY_CEILING": "32"}},
		{"two windows of checkpoint bytes",
			vars{"HOLDFAST_WORK_MEMORY": "128", "HOLDFAST_CHECKPOINT_BYTES": "18874369"},
			vars{"HOLDFAST_WORK_MEMORY": "128", "HOLDFAST_CHECKPOINT_BYTES": "18874368"}},
		{"the wait's timeout must be above the longest window",
			vars{"HOLDFAST_WINDOWS": "1h,48h"},
			vars{"HOLDFAST_WINDOWS": "1h,47h"}},
		{"the wait's heartbeat must be below its timeout",
			vars{"HOLDFAST_WAIT_HEARTBEAT": "48h"},
			vars{"HOLDFAST_WAIT_HEARTBEAT": "47h"}},
		{"the wait's heartbeat must be above the function timeout",
			vars{"HOLDFAST_WAIT_HEARTBEAT": "15m"},
			vars{"HOLDFAST_WAIT_HEARTBEAT": "901s"}},
		{"a message must be kept longer",
			vars{"HOLDFAST_RETENTION": "48h"},
			vars{"HOLDFAST_RETENTION": "49h"}},
		{"a file must live longer",
			vars{"HOLDFAST_FILE_EXPIRY": "24h"},
			vars{"HOLDFAST_FILE_EXPIRY": "25h"}},
		{"a claim must turn stale at least 10s later",
			vars{"HOLDFAST_SUBMIT_TIMEOUT": "21s", "HOLDFAST_CLAIM_STALE": "30999ms"},
			vars{"HOLDFAST_SUBMIT_TIMEOUT": "20s", "HOLDFAST_CLAIM_STALE": "30s"}},
		{"a message's tries, 15m or half a claim's age apart",
			vars{"HOLDFAST_INGEST_RECEIVES": "577"},
			vars{"HOLDFAST_INGEST_RECEIVES": "576"}},
		{"a message's tries, 15m or half a claim's age apart, must end",
			vars{"HOLDFAST_INGEST_RECEIVES": "289", "HOLDFAST_CLAIM_STALE": "1h"},
			vars{"HOLDFAST_INGEST_RECEIVES": "288", "HOLDFAST_CLAIM_STALE": "1h"}},
	} {
		t.Run(c.rule, func(t *testing.T) {
			_, err := Parse(env(c.breaks))
			if err == nil {
				t.Fatal("accepted")
			}
			values, broken := faults(t, err)
			if len(values) != 0 || len(broken) != 1 || !strings.HasPrefix(broken[0].Rule, c.rule) {
				t.Fatalf("got %v, want this rule alone", err)
			}
			if _, err := Parse(env(c.holds)); err != nil {
				t.Errorf("the edge is refused: %v", err)
			}
		})
	}
	if got := len(relations); got != 17 {
		t.Errorf("%d relations, 17 are tried here", got)
	}
}

func TestAllFaultsTogether(t *testing.T) {
	_, err := Parse(env(map[string]string{
		"HOLDFAST_LEASE":            "ten",  // malformed: its relations are left out
		"HOLDFAST_HEARTBEAT":        "1ms",  // out of bounds
		"HOLDFAST_PART_LINES":       "2001", // out of bounds, and breaks its relation
		"HOLDFAST_CHECKPOINT_LINES": "2",
		"HOLDFAST_WINDOWS":          "24h,never",
		"HOLDFAST_LINE_TIMEOUT":     "14m",
		"HOLDFAST_MARGIN":           "2m",
	}))
	if err == nil {
		t.Fatal("accepted")
	}
	values, broken := faults(t, err)
	var got []string
	for _, f := range values {
		got = append(got, f.Name)
	}
	want := "[HOLDFAST_PART_LINES HOLDFAST_LEASE HOLDFAST_HEARTBEAT HOLDFAST_WINDOWS]"
	if fmt.Sprint(got) != want {
		t.Errorf("faults %v, want %s", got, want)
	}
	if len(broken) != 2 {
		t.Errorf("broken relations %v, want those of the line timeout and of the checkpoints", broken)
	}
	wantText := "HOLDFAST_LINE_TIMEOUT=14m, HOLDFAST_MARGIN=2m, HOLDFAST_FUNCTION_TIMEOUT=15m: " +
		"the line timeout and the margin together must be below the function timeout (otherwise no line could ever be sent)"
	if !strings.Contains(err.Error(), wantText) {
		t.Errorf("%v\ndoesn't say %q", err, wantText)
	}
	if lines := strings.Count(err.Error(), "\n") + 1; lines != 6 {
		t.Errorf("%d lines, want one for each fault:\n%v", lines, err)
	}
}

func TestHeartbeatFollowsTheLease(t *testing.T) {
	s, err := Parse(env(map[string]string{"HOLDFAST_LEASE": "10s"}))
	if err != nil {
		t.Fatal(err)
	}
	if s.Heartbeat != 2500*time.Millisecond {
		t.Errorf("heartbeat %s, want a quarter of 10s", s.Heartbeat)
	}
}

func TestEnvGivesTheSettingsAgain(t *testing.T) {
	changed := map[string]string{
		"HOLDFAST_LEASE": "10s", "HOLDFAST_WINDOWS": "15s,24h", "HOLDFAST_FILE_LINES": "10",
		"HOLDFAST_CHECKPOINT_EVERY": "1500ms", "HOLDFAST_ENDPOINTS": "/v1/embeddings", "HOLDFAST_MODELS": "a,b/c",
	}
	s, err := Parse(env(changed))
	if err != nil {
		t.Fatal(err)
	}
	out := s.Env()
	if len(out) != len(table) {
		t.Errorf("%d variables, want every one of %d", len(out), len(table))
	}
	again, err := Parse(env(out))
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(again, s) {
		t.Errorf("\n got %+v\nwant %+v", again, s)
	}
	if maps.Equal(out, Default().Env()) {
		t.Error("the changes are lost")
	}
}

func TestRows(t *testing.T) {
	s, err := Parse(env(map[string]string{"HOLDFAST_LEASE": "4m"}))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Row{}
	for _, r := range Rows(s) {
		byName[r.Name] = r
	}
	if r := byName["HOLDFAST_LEASE"]; r.Value != "4m" || r.Default != "2m" || r.Floor != "2s" || r.Ceiling != "12h" || r.Why == "" {
		t.Errorf("lease row %+v", r)
	}
	if r := byName["HOLDFAST_HEARTBEAT"]; r.Value != "1m" || r.Default != "1m" {
		t.Errorf("heartbeat row %+v", r)
	}
	if r := byName["HOLDFAST_WINDOWS"]; r.Value != "24h,1h" || r.Floor != "1s" {
		t.Errorf("windows row %+v", r)
	}
	if r := byName["HOLDFAST_FILE_BYTES"]; r.Value != "200000000" || r.Unit != "bytes" {
		t.Errorf("file bytes row %+v", r)
	}
}

func TestWindow(t *testing.T) {
	s := Default()
	if d, ok := s.Window("24h"); !ok || d != 24*time.Hour {
		t.Errorf("24h: %v %v", d, ok)
	}
	for _, name := range []string{"", "15s", "1440m", "24H", " 24h"} {
		if _, ok := s.Window(name); ok {
			t.Errorf("%q accepted", name)
		}
	}
	if s.LongestWindow() != 24*time.Hour {
		t.Errorf("longest %v", s.LongestWindow())
	}
}
