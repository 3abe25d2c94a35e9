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

	"holdfast/internal/openai"
)

// of decodes what a step gave.
func of[T any](t *testing.T, o observed, step string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(o.Results[step], &v); err != nil {
		t.Fatalf("%s gave %s: %v", step, o.Results[step], err)
	}
	return v
}

// checkSteps: each step succeeded or failed as it should, with as many requests
// as it should take, and the client knows the id of the answer that it got.
func checkSteps(t *testing.T, f *front, o observed) {
	t.Helper()
	went := map[string]bool{}
	for _, s := range steps {
		went[s.name] = true
		hops := f.of(s.name)
		if want := max(s.requests, 1); s.requests >= 0 && len(hops) != want {
			t.Errorf("%s: %d requests, want %d: %v", s.name, len(hops), want, hops)
		}
		for i, h := range hops {
			want := "0"
			if s.fault == lost || s.fault == refuse || s.fault == down {
				want = fmt.Sprint(i)
			}
			if h.Retry != want || h.Status < 400 && h.RequestID == "" {
				t.Errorf("%s: request %d: %v, want the retry count %s and a request id", s.name, i, h, want)
			}
		}
		got, failed := o.Failures[s.name]
		if s.status == 0 {
			if _, ok := o.Results[s.name]; !ok || failed {
				t.Errorf("%s failed: %+v", s.name, got)
			}
			continue
		}
		want := failure{Class: classes[s.status], Status: s.status, Code: s.code, Param: s.param, Type: openai.TypeInvalidRequest, Message: got.Message}
		if o.Client == "openai-go" {
			want.Class = "Error"
		}
		if s.status >= 500 {
			want.Type = openai.TypeServer
		}
		if len(hops) > 0 {
			want.RequestID = hops[len(hops)-1].RequestID
		}
		if got != want || got.Message == "" || got.RequestID == "" {
			t.Errorf("%s failed as %+v\nwant %+v", s.name, got, want)
		}
	}
	for step, id := range o.RequestIDs {
		if hops := f.of(step); id != "" && len(hops) > 0 && !slices.ContainsFunc(hops, func(h hop) bool { return h.RequestID == id }) {
			t.Errorf("%s: the client tells the request id %s, but came by as %v", step, id, hops)
		}
	}
	if o.RequestIDs["create"] == "" {
		t.Error("no request id of a call that succeeded")
	}
	for step, why := range o.Invalid {
		t.Errorf("%s: the client's own schema refuses %s: %s", step, o.Results[step], why)
	}
	for _, step := range slices.Concat(slices.Collect(maps.Keys(o.Results)), slices.Collect(maps.Keys(o.Failures))) {
		if !went[step] {
			t.Errorf("%s is no step of the scenario", step)
		}
	}
}

func checkFiles(t *testing.T, f *front, o observed, dir string) {
	t.Helper()
	in, err := os.ReadFile(filepath.Join(dir, "input.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	streamed, buffered := of[openai.File](t, o, "upload stream"), of[openai.File](t, o, "upload buffer")
	for _, tt := range []struct {
		got     openai.File
		name    string
		seconds int64
	}{{streamed, "input.jsonl", 3600}, {of[openai.File](t, o, "file"), "input.jsonl", 3600}, {buffered, "buffer é.jsonl", 30 * 24 * 3600}} {
		g := tt.got
		if g.Object != "file" || g.Bytes != int64(len(in)) || g.Filename != tt.name || g.Purpose != "batch" || g.Status != "processed" || g.ExpiresAt == nil || *g.ExpiresAt != g.CreatedAt+tt.seconds {
			t.Errorf("file %+v, want %s, %d bytes, expiring after %d s", g, tt.name, len(in), tt.seconds)
		}
	}
	for _, step := range []string{"content", "content watched", "content direct", "content of parts"} {
		if of[string](t, o, step) != string(in) {
			t.Errorf("%s: other bytes than were sent: %.300s", step, o.Results[step])
		}
	}
	redirected := 1
	if o.Client == "openai-go" { // follows no redirect and is given the bytes
		redirected = 0
	}
	if store := f.of("store"); len(store) != redirected || redirected == 1 && store[0].Status != 200 {
		t.Errorf("a download went to the store as %v, want %d and without the key", store, redirected)
	}

	inputs := []string{streamed.ID, buffered.ID}
	for _, step := range []string{"upload failing", "upload slow"} {
		inputs = append(inputs, of[openai.File](t, o, step).ID)
	}
	inputs = append(inputs, of[openai.Upload](t, o, "complete").File.ID)
	want := slices.Clone(inputs)
	slices.Reverse(want)
	checkIDs(t, o, "files", want)
	checkIDs(t, o, "files ascending", inputs)
	checkIDs(t, o, "files after", inputs[2:])
	checkPages(t, f, "files ascending", "", inputs[1], inputs[3])
	results := of[[]string](t, o, "files of results")
	for _, step := range []string{"completed", "all failed", "lost over", "keyed over", "cancelled"} {
		b := of[openai.Batch](t, o, step)
		for _, id := range []*string{b.OutputFileID, b.ErrorFileID} {
			if id != nil && !slices.Contains(results, *id) {
				t.Errorf("files of results: %s of %s is not among %v", *id, step, results)
			}
		}
	}
	if got := of[openai.DeletedFile](t, o, "delete"); got != (openai.DeletedFile{ID: streamed.ID, Object: "file", Deleted: true}) {
		t.Errorf("delete gave %+v", got)
	}
	if got := of[[]string](t, o, "models"); !slices.Contains(got, "sim") {
		t.Errorf("models are %v, want sim among them", got)
	}
	if got := of[openai.Model](t, o, "model"); got.ID != "sim" || got.Object != "model" {
		t.Errorf("model is %+v", got)
	}
}

func checkIDs(t *testing.T, o observed, step string, want []string) {
	t.Helper()
	if got := of[[]string](t, o, step); !slices.Equal(got, want) {
		t.Errorf("%s: %v\nwant %v", step, got, want)
	}
}

// checkPages: the client asked for page after page, each after the last id of
// the one before.
func checkPages(t *testing.T, f *front, step string, after ...string) {
	t.Helper()
	for i, h := range f.of(step) {
		if i >= len(after) || after[i] == "" != !strings.Contains(h.Path, "after=") || !strings.Contains(h.Path, after[i]) {
			t.Errorf("%s: page %d is %v, want it after one of %v", step, i, h, after)
		}
	}
}

func checkUploads(t *testing.T, o observed, dir string) {
	t.Helper()
	created, done, again := of[openai.Upload](t, o, "parts create"), of[openai.Upload](t, o, "complete"), of[openai.Upload](t, o, "complete again")
	if created.Object != "upload" || created.Status != openai.UploadPending || created.File != nil || created.Purpose != "batch" || created.Filename != "parts.jsonl" || created.ExpiresAt <= created.CreatedAt {
		t.Errorf("created upload %+v", created)
	}
	if done.Status != openai.UploadCompleted || done.File == nil || done.File.Bytes != created.Bytes || done.File.Filename != "parts.jsonl" || done.ID != created.ID {
		t.Errorf("completed upload %+v, file %+v", done, done.File)
	}
	if again.File == nil || done.File == nil || again.File.ID != done.File.ID || again.Status != done.Status {
		t.Errorf("completed again: %+v, file %+v", again, again.File)
	}
	parts := map[string]bool{}
	for n := range 3 {
		p := of[openai.UploadPart](t, o, fmt.Sprintf("part %d", n))
		parts[p.ID] = true
		if p.Object != "upload.part" || p.UploadID != created.ID {
			t.Errorf("part %d is %+v", n, p)
		}
	}
	if len(parts) != 3 {
		t.Errorf("parts share ids: %v", parts)
	}
	for _, step := range []string{"cancel upload", "cancel upload again"} {
		if u := of[openai.Upload](t, o, step); u.Status != openai.UploadCancelled || u.File != nil {
			t.Errorf("%s gave %+v", step, u)
		}
	}
}

func checkBatches(t *testing.T, f *front, o observed) {
	t.Helper()
	input := of[openai.File](t, o, "upload buffer").ID
	created := of[openai.Batch](t, o, "create")
	if created.Object != "batch" || created.Status != openai.StatusValidating || created.InputFileID != input || created.Metadata["name"] != "é" ||
		created.RequestCounts != (openai.RequestCounts{}) || created.OutputFileID != nil || created.ExpiresAt == nil || *created.ExpiresAt != created.CreatedAt+24*3600 {
		t.Errorf("created %+v", created)
	}

	// Newest first; what was lost on its way was created once, and what was refused too.
	var want []string
	for _, step := range []string{"create keyed", "create refused", "create lost", "create slow", "create failing", "create"} {
		want = append(want, of[openai.Batch](t, o, step).ID)
	}
	checkIDs(t, o, "list", want)
	checkPages(t, f, "list", "", want[1], want[3])
	if again := of[openai.Batch](t, o, "create keyed again"); again.ID != want[0] {
		t.Errorf("the same Idempotency-Key gave %s, then %s", want[0], again.ID)
	}
	if twin := of[openai.Batch](t, o, "create twin"); slices.Contains(want, twin.ID) {
		t.Errorf("a first request for an equal batch was taken for a repeated one: %s of %v", twin.ID, want)
	}

	done := of[openai.Batch](t, o, "completed")
	counts := openai.RequestCounts{Total: mainLines, Completed: mainLines - mainFailing, Failed: mainFailing}
	if done.Status != openai.StatusCompleted || done.RequestCounts != counts || done.OutputFileID == nil || done.ErrorFileID == nil || done.CompletedAt == nil || done.InProgressAt == nil || done.FinalizingAt == nil ||
		done.Usage == nil || done.Usage.TotalTokens == 0 || done.CancellingAt != nil || done.Metadata["name"] != "é" {
		t.Errorf("completed %+v, want %+v", done, counts)
	}
	if over := o.Results["cancel over"]; !sameJSON(t, over, o.Results["completed"]) {
		t.Errorf("cancelling what is over gave %s\nwant it unchanged: %s", over, o.Results["completed"])
	}
	checkLines(t, o, "output", mainFailing, mainLines, 200, "")
	checkLines(t, o, "errors", 0, mainFailing, 400, "")
	failed := of[openai.Batch](t, o, "all failed")
	if failed.Status != openai.StatusCompleted || failed.OutputFileID != nil || failed.ErrorFileID == nil || failed.RequestCounts != (openai.RequestCounts{Total: failingLines, Failed: failingLines}) {
		t.Errorf("a batch whose lines all fail: %+v", failed)
	}
	if id, ok := of[map[string]any](t, o, "all failed")["output_file_id"]; !ok || id != nil {
		t.Errorf("output_file_id is %v (there: %v), want null", id, ok)
	}
	checkLines(t, o, "all errors", 0, failingLines, 400, "")
	for _, step := range []string{"lost over", "keyed over"} {
		if b := of[openai.Batch](t, o, step); b.Status != openai.StatusCompleted || b.RequestCounts != counts {
			t.Errorf("%s: %+v", step, b)
		}
	}
}

// checkLines holds a result file to the lines from up to to: with this status
// of the model, or without an answer and with this code.
func checkLines(t *testing.T, o observed, step string, from, to, status int, code string) {
	t.Helper()
	text := of[string](t, o, step)
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) != to-from {
		t.Errorf("%s has %d lines, want %d: %.500s", step, len(lines), to-from, text)
		return
	}
	for i, line := range lines {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Errorf("%s: line %d: %v: %s", step, i, err, line)
			return
		}
		ok := r.Response != nil && r.Response.StatusCode == status && r.Error == nil
		if code != "" {
			ok = r.Response == nil && r.Error != nil && r.Error.Code == code
		}
		if string(r.CustomID) != fmt.Sprintf(`"é %d"`, from+i) || !ok {
			t.Errorf("%s: line %d is %s, want the id of line %d, %d %s", step, i, line, from+i, status, code)
		}
	}
}

// checkCancel: the batch was ended before it was through, and what it has is in
// its files.
func checkCancel(t *testing.T, o observed) {
	t.Helper()
	first, again, b := of[openai.Batch](t, o, "cancel"), of[openai.Batch](t, o, "cancel again"), of[openai.Batch](t, o, "cancelled")
	if first.Status != openai.StatusCancelling || first.CancellingAt == nil || again.Status != openai.StatusCancelling && again.Status != openai.StatusCancelled || again.CancellingAt == nil || *again.CancellingAt != *first.CancellingAt {
		t.Errorf("cancelled as %+v, then %+v", first, again)
	}
	c := b.RequestCounts
	if b.Status != openai.StatusCancelled || b.CancelledAt == nil || b.CancellingAt == nil || b.CompletedAt != nil || c.Total != slowLines || c.Completed+c.Failed != slowLines || c.Completed == slowLines {
		t.Errorf("cancelled %+v", b)
	}
	// Which lines were done is chance, and that each of the others is told of is not.
	cancelled := 0
	for line := range strings.Lines(of[string](t, o, "cancelled errors")) {
		var r result
		if err := json.Unmarshal([]byte(line), &r); err != nil || r.Response != nil || r.Error == nil || r.Error.Code != "batch_cancelled" {
			t.Fatalf("line of a cancelled batch: %v: %s", err, line)
		}
		cancelled++
	}
	if cancelled != c.Failed {
		t.Errorf("%d lines are told to be cancelled, counts are %+v", cancelled, c)
	}
}

func sameJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	var out [2]bytes.Buffer
	for i, raw := range []json.RawMessage{a, b} {
		var v any
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if err := json.NewEncoder(&out[i]).Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	return bytes.Equal(out[0].Bytes(), out[1].Bytes())
}
