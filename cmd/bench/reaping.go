package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"golang.org/x/sync/errgroup"

	"holdfast/internal/aws/awsconf"
	"holdfast/internal/aws/dynamo"
	"holdfast/internal/aws/queue"
	"holdfast/internal/aws/workflow"
	"holdfast/internal/batch"
	"holdfast/internal/config"
	"holdfast/internal/lease"
	"holdfast/internal/reap"
)

// reaping measures how long the reaper takes for parts whose workers all died: the
// one that is deployed, but in this process, and with a queue that no worker reads.
// Its clock is an hour ahead of the deployed reaper's, which therefore sees live
// workers.
func (r *loadRun) reaping(ctx context.Context) (_ []figure, err error) {
	cfg, err := awsconf.Load(ctx)
	if err != nil {
		return nil, err
	}
	table := dynamo.Open(cfg, os.Getenv(config.EnvTable))
	queues := sqs.NewFromConfig(cfg)
	made, err := queues.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: aws.String(fmt.Sprintf("holdfast-bench-%d", time.Now().UnixMilli()))})
	if err != nil {
		return nil, err
	}
	defer func() {
		_, derr := queues.DeleteQueue(context.WithoutCancel(ctx), &sqs.DeleteQueueInput{QueueUrl: made.QueueUrl})
		err = errors.Join(err, derr)
	}()
	now := time.Now()
	b, err := r.abandon(ctx, table, now)
	if err != nil {
		return nil, err
	}
	machine := workflow.New(cfg, os.Getenv(config.EnvStateMachineARN))
	reaper, err := reap.New(reap.Ports{
		Batches: table.Batches, Parts: table.Parts, Reaps: table.Reaps, Deaths: table.Deaths, Seals: table.Seals, Events: table.Events,
		Queue: queue.New(cfg, *made.QueueUrl), Workflow: machine, Ender: batch.NewEnder(table.Batches, table.Endings, machine),
	}, nil)
	if err != nil {
		return nil, err
	}
	begun, rounds, reaped := time.Now(), 0, 0
	for more := true; more; rounds++ {
		// As the function has it: a minute.
		inTime, cancel := context.WithTimeout(ctx, time.Minute)
		rep, err := reaper.Round(inTime, reap.Scope{Tenant: b.Tenant}, now.Add(time.Hour))
		cancel()
		if err != nil || rep.Failed > 0 {
			return nil, fmt.Errorf("round %d: %+v, %w", rounds+1, rep, err)
		}
		reaped += rep.Reaped
		more = rep.More
	}
	took := time.Since(begun)
	// Nobody is to run them.
	if _, err := table.Batches.Refuse(ctx, b.Tenant, b.ID, nil, now); err != nil && !errors.Is(err, batch.ErrStatus) {
		return nil, err
	}
	if reaped != r.lapsed {
		return nil, fmt.Errorf("%d parts of %d were given back", reaped, r.lapsed)
	}
	return []figure{
		atMost(fmt.Sprintf("%d lapsed parts given back, each with a message and an event", reaped), took.Seconds(), 60, "s"),
		unbounded("  rounds that took", float64(rounds), ""),
	}, nil
}

// abandon makes a batch whose parts are all held, for half an hour, by workers that
// don't exist.
func (r *loadRun) abandon(ctx context.Context, table *dynamo.Store, now time.Time) (batch.Batch, error) {
	b := batch.Batch{
		Tenant: fmt.Sprintf("bench-%d", now.UnixMilli()), ID: batch.NewID(), Submitter: "bench", Endpoint: loadEndpoint, Window: "24h",
		CreatedAt: now, Deadline: now.Add(24 * time.Hour), Due: now.Add(20 * time.Hour),
	}
	if err := table.Batches.Create(ctx, b); err != nil {
		return b, err
	}
	parts := make([]batch.Part, r.lapsed)
	for n := range parts {
		parts[n] = batch.Part{
			PartKey: batch.PartKey{Tenant: b.Tenant, Batch: b.ID, N: n}, Due: b.Due, FirstLine: int64(500 * n), Lines: 500,
			From: int64(n) << 20, To: int64(n+1) << 20, DoneLines: batch.NewBitmap(500), CreatedAt: now,
		}
	}
	if err := table.Parts.Insert(ctx, parts); err != nil {
		return b, err
	}
	if _, err := table.Batches.Start(ctx, b.Tenant, b.ID, batch.Started{Parts: len(parts), Lines: int64(500 * len(parts))}, now); err != nil {
		return b, err
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for _, p := range parts {
		group.Go(func() error {
			c := batch.Claim{PartKey: p.PartKey, Token: lease.NewToken()}
			_, err := table.Claims.Claim(inner, c, "token-of-a-task-that-nobody-waits-for", 3, now.Add(30*time.Minute), now)
			return err
		})
	}
	return b, group.Wait()
}
