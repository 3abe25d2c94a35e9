package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/lambda"
	"github.com/aws/aws-sdk-go-v2/service/lambda/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"holdfast/internal/bridge"
	"holdfast/internal/bridge/jobs"
	"holdfast/internal/bridge/jobs/jobsim"
	"holdfast/internal/config"
)

// external is what came of requests whose jobs another service starts.
type external struct {
	Requests   int          `json:"requests"`
	Deliveries int          `json:"deliveries"`
	Service    jobsim.Stats `json:"service"` // as it counted
	Letters    int          `json:"dead_letters"`
	Seconds    float64      `json:"seconds"`
}

// token is the service's.
const token = "chaos-of-jobs"

// elsewhere has the doors start jobs at another service, which loses answers, isn't
// always there and refuses one: each request is one job, and no batch here. whole has
// it wait until every delivery was answered.
func (t *tormentor) elsewhere(ctx context.Context, whole bool) (e external, faults []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, errors.New("external jobs: not within 2m"))
	defer cancel()
	began := time.Now()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return e, nil, err
	}
	service := jobsim.New(jobsim.Options{Token: token})
	server := &http.Server{Handler: service, ReadHeaderTimeout: 10 * time.Second, ErrorLog: quietly}
	go server.Serve(l)
	defer server.Close()
	back, err := t.configure(ctx, map[string]string{config.EnvJobsURL: "http://" + l.Addr().String(), config.EnvJobsKey: token}, t.ingester, t.reaper)
	defer func() { err = errors.Join(err, back()) }()
	if err != nil {
		return e, nil, err
	}
	t.say("external jobs: configured after %.1f s", time.Since(began).Seconds())
	c, err := t.tenant(ctx, "jobs")
	if err == nil {
		err = c.open(ctx)
	}
	if err != nil {
		return e, nil, err
	}
	in := input{lines: 3, model: "sim"}
	dropped, err := c.drop(ctx, "a job.jsonl", in)
	if err != nil {
		return e, nil, err
	}
	orders := map[string]*order{"": dropped}
	for _, sim := range []string{"lose-2", "busy-2", "pending-300", "refuse-422"} {
		o, err := c.order(ctx, sim, in)
		if err != nil {
			return e, nil, err
		}
		o.metadata = map[string]string{"sim": sim}
		orders[sim] = o
		if err := o.send(ctx, o.message()); err != nil {
			return e, nil, err
		}
		e.Deliveries++
	}
	fault := func(format string, args ...any) {
		faults = append(faults, "external jobs: "+fmt.Sprintf(format, args...))
	}
	for sim, o := range orders {
		e.Requests++
		if sim == "refuse-422" {
			continue
		}
		row, err := o.confirmed(ctx)
		if err != nil {
			return e, nil, err
		}
		if !strings.HasPrefix(row.Job, "job-") || row.Request.Service != jobs.Service {
			fault("request %q is the job %q of the service %q", sim, row.Job, row.Request.Service)
		}
		// Once it is there, more of the same.
		again := []string{o.message(), o.message()}
		if o == dropped {
			event, err := o.event(true)
			if err != nil {
				return e, nil, err
			}
			again = append(again, event)
		}
		if err := o.send(ctx, again...); err != nil {
			return e, nil, err
		}
		e.Deliveries += len(again)
	}
	if whole {
		if err := t.drained(ctx); err != nil {
			return e, nil, err
		}
	}
	e.Deliveries++ // what the put told of
	refused := orders["refuse-422"]
	err = every(ctx, 200*time.Millisecond, func() (bool, error) {
		n, err := t.letters(ctx, refused.name, c.tenant)
		e.Letters += n
		return e.Letters > 0, err
	})
	if err != nil {
		return e, nil, fmt.Errorf("the message that was refused: %w", err)
	}
	if _, err := refused.row(ctx); !errors.Is(err, bridge.ErrNotFound) {
		fault("the claim of the request that was refused: %v", err)
	}
	e.Service = service.Stats()
	if e.Service.Jobs != len(orders)-1 || e.Service.Lost != 2 || e.Service.Denied != 0 || e.Letters != 1 {
		fault("%d requests, one of them refused: the service has %+v, %d are dead letters", len(orders), e.Service, e.Letters)
	}
	for _, o := range orders {
		if n := service.Posts()[o.id]; n == 0 {
			fault("nothing was posted under %s", o.id)
		}
	}
	ids, err := c.batches(ctx)
	if err != nil {
		return e, nil, err
	}
	if len(ids) > 0 {
		fault("%q are batches here", ids)
	}
	e.Seconds = time.Since(began).Seconds()
	t.say("external jobs: %d requests, %d deliveries: the service has %+v", e.Requests, e.Deliveries, e.Service)
	return e, faults, nil
}

// configure gives functions more environment, as a deploy would. back takes it away.
func (s *stack) configure(ctx context.Context, more map[string]string, functions ...string) (back func() error, err error) {
	aws := lambda.NewFromConfig(s.cfg)
	set := func(ctx context.Context, name string, vars map[string]string) error {
		_, err := aws.UpdateFunctionConfiguration(ctx, &lambda.UpdateFunctionConfigurationInput{FunctionName: &name, Environment: &types.Environment{Variables: vars}})
		if err != nil {
			return fmt.Errorf("configure %s: %w", name, err)
		}
		return nil
	}
	was := map[string]map[string]string{}
	back = func() (err error) {
		for name, vars := range was {
			err = errors.Join(err, set(context.WithoutCancel(ctx), name, vars))
		}
		return err
	}
	for _, name := range functions {
		now, err := aws.GetFunctionConfiguration(ctx, &lambda.GetFunctionConfigurationInput{FunctionName: &name})
		if err != nil {
			return back, err
		}
		vars := maps.Clone(now.Environment.Variables)
		maps.Copy(vars, more)
		was[name] = now.Environment.Variables
		if err := set(ctx, name, vars); err != nil {
			return back, err
		}
	}
	return back, nil
}

// letters counts the ingest queue's dead letters of a request, and holds each to its
// reason.
func (s *stack) letters(ctx context.Context, correlation, tenant string) (n int, err error) {
	queue := sqs.NewFromConfig(s.cfg)
	for {
		out, err := queue.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &s.dead, MaxNumberOfMessages: 10, MessageAttributeNames: []string{"All"}})
		if err != nil || len(out.Messages) == 0 {
			return n, err
		}
		for _, m := range out.Messages {
			if !strings.Contains(*m.Body, `"tenant":"`+tenant+`"`) || !strings.Contains(*m.Body, `"correlation_id":"`+correlation+`"`) {
				continue
			}
			reason, ok := m.MessageAttributes["reason"]
			if !ok || reason.StringValue == nil || *reason.StringValue == "" {
				return n, fmt.Errorf("a dead letter of %s has no reason", correlation)
			}
			n++
		}
	}
}
