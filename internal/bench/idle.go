package bench

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/metrics"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/cost"
	"holdfast/internal/memory"
	"holdfast/internal/reap"
)

// IdleStack is the stack as it is deployed while nobody asks anything of it: the
// work queue is polled, and with doors beside HTTP that of ingest, the upstream's
// secret is kept, and the reaper is called each minute, whose calls and log are
// counted here from a round of the real one.
func IdleStack(doors bool) (cost.Idle, error) {
	queues := 1
	if doors {
		queues++
	}
	idle := cost.Idle{
		Queues: queues, Secrets: 1,
		Runs: cost.Month.Minutes(), RunMemory: config.ReapMemory, RunTime: idleRound,
	}
	f, logged := memory.NewFaults(), &atomic.Int64{}
	m := memory.New(memory.Options{}).With(f)
	counts := metrics.New("reap", counter{logged}, nil)
	r, err := reap.New(reap.Ports{
		Batches: m.Table.Batches, Parts: m.Table.Parts, Reaps: m.Table.Reaps, Deaths: m.Table.Deaths, Seals: m.Table.Seals, Events: m.Table.Events,
		Queue: m.Queue, Workflow: m.Workflow, Ender: batch.NewEnder(m.Table.Batches, m.Table.Endings, m.Workflow), Letters: m.Queue,
	}, &reap.Options{Log: slog.New(slog.NewJSONHandler(counter{logged}, nil)), Observer: counts.Observer()})
	if err != nil {
		return idle, err
	}
	if _, err := r.Round(context.Background(), reap.Scope{}, time.Now()); err != nil {
		return idle, err
	}
	counts.Flush(time.Now())
	for _, p := range f.Calls() {
		switch p.Op {
		case "Reaps.Due":
			idle.RunReads += dynamo.ReadUnits(0, false) // of an index; nothing is the least that is billed
		case "Queue.Receive":
			idle.RunRequests++
		default:
			return idle, fmt.Errorf("nobody knows what %s costs", p.Op)
		}
	}
	const usageLine, platform = 350, 500 // the meter's; START, END and REPORT
	idle.RunLog = float64(logged.Load()) + usageLine + platform
	return idle, nil
}

// idleRound is how long a round that finds nothing takes, in milliseconds: two
// score of calls side by side, at a third of a processor. It was not measured on a
// real account.
const idleRound = 150
