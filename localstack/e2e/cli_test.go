package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/openai"
)

// The command line from a file to its results, as a script would use it.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	c := newTenant(t, "submit,read")
	as := []string{"HOLDFAST_API_KEY=" + c.key}
	dir := t.TempDir()
	in := filepath.Join(dir, "in.jsonl")
	reqs := mixed(120)
	if err := os.WriteFile(in, file(reqs), 0o600); err != nil {
		t.Fatal(err)
	}
	out, said, code := cli(t, as, "submit", in, "--wait", "--json")
	var b openai.Batch
	if err := json.Unmarshal(out, &b); err != nil || code != 0 || b.Status != openai.StatusCompleted || b.RequestCounts.Total != 120 {
		t.Fatalf("submit: exit %d, %v, %s%s", code, err, out, said)
	}
	if out, said, code = cli(t, as, "status", b.ID); code != 0 || !bytes.Contains(out, []byte("completed")) {
		t.Errorf("status: exit %d, %s%s", code, out, said)
	}
	results, errs := filepath.Join(dir, "out.jsonl"), filepath.Join(dir, "err.jsonl")
	if out, said, code = cli(t, as, "results", b.ID, "--output", results, "--errors", errs); code != 0 {
		t.Fatalf("results: exit %d, %s%s", code, out, said)
	}
	for path, want := range map[string]int{results: b.RequestCounts.Completed, errs: b.RequestCounts.Failed} {
		data, err := os.ReadFile(path)
		if err != nil || bytes.Count(data, []byte("\n")) != want {
			t.Errorf("%s: %v, %d lines, want %d", path, err, bytes.Count(data, []byte("\n")), want)
		}
	}

	bad := filepath.Join(dir, "bad.jsonl")
	if err := os.WriteFile(bad, []byte(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":{}}`+"\n{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, said, code = cli(t, as, "submit", bad, "--wait"); code != 1 || !bytes.Contains(append(out, said...), []byte("invalid_json_line")) {
		t.Errorf("bad file: exit %d, %s%s", code, out, said)
	}
	for _, args := range [][]string{{"submit"}, {"submit", filepath.Join(dir, "none.jsonl")}, {"nothing"}, {"status"}} {
		out, said, code := cli(t, as, args...)
		if want := map[bool]int{true: 1, false: 2}[strings.Contains(strings.Join(args, " "), "none.jsonl")]; code != want && code != 2 || len(said) == 0 {
			t.Errorf("%v: exit %d, %s%s", args, code, out, said)
		}
	}
	if _, said, code := cli(t, []string{"HOLDFAST_API_KEY=hf_wrong"}, "status", b.ID); code != 1 || !bytes.Contains(said, []byte("key")) {
		t.Errorf("wrong key: exit %d, %s", code, said)
	}
}
