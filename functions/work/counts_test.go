package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
)

// One line an invocation, and one of an invocation that fails as well.
func TestCounts(t *testing.T) {
	for _, panics := range []bool{false, true} {
		var out bytes.Buffer
		h, _, _, _ := house(batch.Outcome{Ack: true})
		h.counts = metrics.New("work", &out, nil)
		h.run = func(context.Context, batch.Delivery, time.Time) batch.Outcome {
			h.counts.Observer().Add(batch.MetricClaims, 1)
			h.counts.Observer().Add(batch.MetricCompleted, 500)
			if panics {
				panic("out of order")
			}
			return batch.Outcome{Ack: true}
		}
		func() {
			defer func() { _ = recover() }() // as the runtime's own wrapper does, before it ends the process
			_, _ = h.handle(t.Context(), sample(t))
		}()
		line := out.String()
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, `"Claims":1,`) || !strings.Contains(line, `"LinesCompleted":500,`) {
			t.Errorf("panics %v: %q", panics, line)
		}
	}
}
