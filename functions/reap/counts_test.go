package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/reap"
)

// One line an invocation, and one of a round that fails as well.
func TestCounts(t *testing.T) {
	for _, err := range []error{nil, errors.New("the index can't be read")} {
		var out bytes.Buffer
		counts := metrics.New("reap", &out, nil)
		h := handler{log: slog.New(slog.DiscardHandler), counts: counts}
		h.round = func(context.Context, reap.Scope, time.Time) (reap.Report, error) {
			counts.Observer().Add(batch.MetricReaped, 2)
			counts.Observer().Add(batch.MetricDeadParts, 1)
			return reap.Report{}, err
		}
		if _, got := h.handle(t.Context(), event{DetailType: tick}); !errors.Is(got, err) {
			t.Errorf("%v, want %v", got, err)
		}
		line := out.String()
		if strings.Count(line, "\n") != 1 || !strings.Contains(line, `"DeadParts":1,`) || !strings.Contains(line, `"Reaped":2,`) {
			t.Errorf("round %v: %q", err, line)
		}
	}
}
