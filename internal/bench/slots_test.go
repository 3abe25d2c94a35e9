package bench

import (
	"testing"
	"testing/synctest"
	"time"
)

// The bounds of the Runner's slot use, in virtual time: no noise, no tolerance.
func TestSlotUse(t *testing.T) {
	const k, lines, part = 32, 10_000, 500
	for _, c := range []struct {
		name    string
		latency func(int) time.Duration
		port    time.Duration
		bound   float64
	}{
		{"lognormal", Lognormal(lines, 40*time.Millisecond, 0.9, 1), 0, 0.95},
		{"constant", Constant(40 * time.Millisecond), 0, 0.98},
		// As deployed: a second a line, and ports that take 15 ms a call.
		{"lognormal, real ports", Lognormal(lines, time.Second, 0.9, 2), 15 * time.Millisecond, 0.95},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				use, elapsed, err := Rig{Latency: c.latency, Concurrency: k, Lines: lines, PartLines: part, Port: c.port}.SlotUse()
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("slot use %.4f, %s", use, elapsed)
				if use < c.bound || use > 1 {
					t.Errorf("slot use %.4f, want %.2f to 1", use, c.bound)
				}
			})
		})
	}
}

func BenchmarkOwnWork(b *testing.B) {
	for b.Loop() {
		rate, cpu, err := OwnWork(20_000)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(rate, "lines/s")
		b.ReportMetric(cpu, "cpu-s/1000")
	}
}

func BenchmarkSlotUse(b *testing.B) {
	for b.Loop() {
		use, _, err := SlotUse(Lognormal(10_000, 40*time.Millisecond, 0.9, 1), 32, 10_000, 500)
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(use, "use")
	}
}
