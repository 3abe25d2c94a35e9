package storetest

import (
	"strings"
	"testing"
	"time"

	"holdfast/internal/batch"
)

// TestFails: a case that fails is caught, however it fails, and one that passes
// isn't.
func TestFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		run  func(t T, cleaned *bool)
		want bool
		said string
	}{
		{"passes", func(t T, _ *bool) { t.Logf("fine") }, false, "fine"},
		{"errs", func(t T, _ *bool) { t.Errorf("wrong: %d", 7) }, true, "wrong: 7"},
		{"errs elsewhere", func(t T, _ *bool) {
			race(2, func(int) int { t.Errorf("wrong"); return 0 })
		}, true, "wrong\nwrong"},
		{"stops", func(t T, _ *bool) { t.Fatalf("stop"); panic("went on") }, true, "stop"},
		{"panics", func(T, *bool) { panic("oh") }, true, "panic: oh"},
		{"cleans up", func(t T, cleaned *bool) {
			t.Cleanup(func() { *cleaned = true })
			t.Fatalf("stop")
		}, true, "stop"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cleaned := false
			c := Case[*bool]{tt.name, tt.run}
			failed, said := Fails(t.Context(), c, func(T) *bool { return &cleaned })
			if failed != tt.want || !strings.HasPrefix(said, tt.said) {
				t.Errorf("failed=%v, said %q", failed, said)
			}
			if cleaned != (tt.name == "cleans up") {
				t.Errorf("cleaned up: %v", cleaned)
			}
		})
	}
	failed, _ := Fails(t.Context(), Case[int]{"opens", func(T, int) {}}, func(t T) int { t.Fatalf("no store"); return 0 })
	if !failed {
		t.Error("ports that can't be opened are no failure")
	}
}

// TestDiff: what stores may change isn't a difference; everything else is.
func TestDiff(t *testing.T) {
	full := midPart(batch.PartKey{Tenant: "t", Batch: "b"}, "tok")
	if d := diff(stored(full), full); d != "" {
		t.Errorf("a stored part differs:%s", d)
	}
	for _, tt := range []struct {
		says   string
		change func(*batch.Part)
	}{
		{"PartKey = ", func(p *batch.Part) { p.N++ }},
		{"State = ", func(p *batch.Part) { p.State = "" }},
		{"LeaseUntil = ", func(p *batch.Part) { p.LeaseUntil = p.LeaseUntil.Add(time.Millisecond) }},
		{"DoneLines = ", func(p *batch.Part) { p.DoneLines = bits(5, 0, 2) }},
		{"Chunks = ", func(p *batch.Part) { p.Chunks = p.Chunks[:1] }},
		{"Ver = ", func(p *batch.Part) { p.Ver++ }},
		{"not whole milliseconds", func(p *batch.Part) { p.Due = p.Due.Add(time.Nanosecond) }},
		{"in UTC", func(p *batch.Part) { p.CreatedAt = p.CreatedAt.In(time.FixedZone("", 3600)) }},
	} {
		got := stored(full)
		tt.change(&got)
		if d := diff(got, full); !strings.Contains(d, tt.says) || strings.Count(d, " = ") != 1 {
			t.Errorf("want %q, got:%s", tt.says, d)
		}
	}
	if d := diff(batch.Part{Ver: 1, DoneLines: batch.Bitmap{0, 0}}, batch.Part{}, "Ver"); d != "" {
		t.Errorf("Ver was not to be compared, and a bitmap without a bit is empty:%s", d)
	}
	if d := diff(batch.Batch{Metadata: map[string]string{}}, batch.Batch{}); d != "" {
		t.Errorf("empty metadata differ from none:%s", d)
	}
}
