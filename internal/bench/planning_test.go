package bench

import (
	"bufio"
	"bytes"
	"io"
	"testing"
	"testing/iotest"
	"time"

	"holdfast/internal/openai"
)

var texts = []Text{Prose, Tools, Scripts, Escaped}

// An Input is what it says: so many valid requests, so many bytes, the same ones
// again.
func TestInput(t *testing.T) {
	want := openai.Expect{Endpoint: "/v1/chat/completions"}
	for _, text := range texts {
		for _, size := range []int{512, 1 << 10, 4 << 10} {
			in, err := NewInput(text, size, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := io.ReadAll(in.Open())
			if err != nil || int64(len(raw)) != in.Bytes() || in.Bytes() > 1<<20 || in.Bytes() < 1<<20-int64(3*size) {
				t.Fatalf("%s, %d: %d bytes, said %d: %v", text, size, len(raw), in.Bytes(), err)
			}
			if again, err := io.ReadAll(iotest.OneByteReader(in.Open())); err != nil || !bytes.Equal(raw, again) {
				t.Fatalf("%s, %d: other bytes the second time: %v", text, size, err)
			}
			for _, from := range []int{0, 1, 700, len(raw) / 2, len(raw) - 1, len(raw)} {
				if rest, err := io.ReadAll(in.OpenAt(int64(from))); err != nil || !bytes.Equal(rest, raw[from:]) {
					t.Fatalf("%s, %d: other bytes from %d on: %v", text, size, from, err)
				}
			}
			if mean := len(raw) / int(in.Lines()); mean < size*85/100 || mean > size*115/100 {
				t.Errorf("%s: %d bytes a line, want about %d", text, mean, size)
			}
			lines, ids := int64(0), map[string]bool{}
			for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); lines++ {
				r, fault := openai.ParseLine(s.Bytes(), want)
				if fault != nil {
					t.Fatalf("%s, %d: %v: %s", text, size, fault, s.Bytes())
				}
				ids[r.CustomID] = true
			}
			if lines != in.Lines() || len(ids) != int(lines) {
				t.Errorf("%s, %d: %d lines with %d ids, said %d", text, size, lines, len(ids), in.Lines())
			}
		}
	}
	if _, err := NewInput(Prose, 512, 10); err == nil {
		t.Error("an input without a line")
	}
}

// Whatever the machine does, both sides read every line.
func TestPlanSpeed(t *testing.T) {
	speed, ratio, err := PlanSpeed(Prose, 1<<10, 1)
	if err != nil || speed <= 0 || ratio <= 0 {
		t.Fatalf("%g bytes/s, ratio %g, %v", speed, ratio, err)
	}
}

func TestPlanPeak(t *testing.T) {
	lines, peak, err := PlanPeak(512, 1<<20)
	if err != nil || lines < 1_000 || peak < 1<<20 {
		t.Fatalf("%d lines, peak %d, %v", lines, peak, err)
	}
}

// A store at a distance gives the same bytes, late.
func TestPlanFar(t *testing.T) {
	speed, ratio, err := PlanFar(1<<20, time.Millisecond, 100e6, 1)
	if err != nil || ratio <= 0 || speed <= 0 || speed > 1<<20/0.001 {
		t.Fatalf("%g bytes/s, ratio %g, %v", speed, ratio, err)
	}
}

func BenchmarkPlan(b *testing.B) {
	for _, text := range texts {
		for _, c := range []struct {
			name string
			size int
		}{{"0.5KB", 512}, {"1KB", 1 << 10}, {"4KB", 4 << 10}} {
			b.Run(string(text)+"/"+c.name, func(b *testing.B) {
				for b.Loop() {
					speed, ratio, err := PlanSpeed(text, c.size, 5)
					if err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(speed/1e6, "MB/cpu-s")
					b.ReportMetric(ratio, "ratio")
				}
			})
		}
	}
}
