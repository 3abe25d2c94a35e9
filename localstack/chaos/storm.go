package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stormed is what came of one request that was delivered many times by every door.
type stormed struct {
	Deliveries int     `json:"deliveries"`
	Processes  int     `json:"processes"`       // of the ingest function that had claimed, or been refused a claim, when some were killed
	Killed     int     `json:"killed"`          // of those
	Others     int     `json:"others_killed"`   // of other functions, who had the claim
	Thieves    int     `json:"thieves_killed"`  // who had just stolen it
	Early      int     `json:"http_told_later"` // creates over HTTP that were told to come again
	Batches    int     `json:"batches"`         // of its tenant
	Executions int     `json:"executions"`      // likewise
	Writes     int64   `json:"writes_of_claim"` // two, and one more each time that it was stolen
	Seconds    float64 `json:"seconds"`         // from the first delivery to the batch
	Settled    float64 `json:"settled_seconds"` // ... until every delivery was answered
}

// storming is how it is done.
type storming struct {
	deliveries int
	concurrent int  // processes of the ingest function at once
	thieves    int  // so many who steal the claim are killed, too
	whole      bool // wait until every delivery was answered, for a claim's life more

	// Whoever is killed has other requests' messages in hand. So those wait until the
	// storm has struck, and thieves are killed when they are clear of it.
	struck func()
	clear  <-chan struct{}
}

// storm delivers one request by all doors at once, while the proxy holds every
// process that has asked for the claim; a fifth of those that drain the queue are
// killed before they hear the answer, whoever has the claim among them.
func (t *tormentor) storm(ctx context.Context, s storming, out *stormed) (act, error) {
	c, err := t.tenant(ctx, "storm")
	if err != nil {
		return act{}, err
	}
	if err := c.open(ctx); err != nil {
		return act{}, err
	}
	killing, over := context.WithCancel(ctx)
	killed, claimed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(killed)
		t.claimants(killing, c.tenant, s, out, sync.OnceFunc(func() { close(claimed) }))
	}()
	defer func() { over(); <-killed; s.struck() }()

	o, err := c.drop(ctx, "storm.jsonl", input{lines: 5, model: "sim"})
	if err != nil {
		return act{}, err
	}
	t.watch(o.run)
	t.say("storm: batch %s, %d deliveries", o.id, s.deliveries)
	versioned, err := o.event(true)
	if err != nil {
		return act{}, err
	}
	bare, err := o.event(false)
	if err != nil {
		return act{}, err
	}
	var messages, events []string
	third := s.deliveries / 3
	for n := range third {
		messages = append(messages, o.message())
		events = append(events, []string{versioned, bare}[n%2])
	}
	var (
		sending sync.WaitGroup
		failed  = make(chan error, s.deliveries)
		later   atomic.Int64
		calls   = make(chan struct{}, 16) // at once: each is a process here
	)
	for _, bodies := range [][]string{messages, events[1:]} { // one came of itself
		sending.Go(func() { failed <- o.send(ctx, bodies...) })
	}
	for range s.deliveries - 2*third {
		sending.Go(func() {
			select { // one of those who drain is to have the claim
			case <-claimed:
			case <-time.After(gathering):
			case <-ctx.Done():
			}
			n, err := o.insist(ctx, calls)
			later.Add(int64(n))
			failed <- err
		})
	}
	row, err := o.confirmed(ctx)
	if err != nil {
		return act{}, err
	}
	out.Seconds = time.Since(o.begun).Seconds()
	sending.Wait()
	close(failed)
	for e := range failed {
		err = errors.Join(err, e)
	}
	if err != nil {
		return act{}, err
	}
	// And late ones, by each door.
	if err := o.send(ctx, o.message(), versioned, bare); err != nil {
		return act{}, err
	}
	_, err = o.insist(ctx, calls)
	out.Deliveries, out.Early, out.Writes = s.deliveries+4, int(later.Load()), row.Ver
	return act{o, "one request by every door", func(v *verdict, batches, executions int) {
		if s.whole {
			out.Settled = time.Since(o.begun).Seconds()
		}
		out.Batches, out.Executions = batches, executions
		if out.Killed*5 < out.Processes || out.Killed+out.Others == 0 {
			v.fault("of %d ingest processes %d were killed, less than 20 %%", out.Processes, out.Killed)
		}
		if out.Thieves < s.thieves {
			v.fault("%d thieves were killed of %d", out.Thieves, s.thieves)
		}
	}}, err
}

// insist creates over HTTP until it is answered with the batch that there is. calls
// bounds how many do at once.
func (o *order) insist(ctx context.Context, calls chan struct{}) (later int, err error) {
	for {
		select {
		case calls <- struct{}{}:
		case <-ctx.Done():
			return later, context.Cause(ctx)
		}
		id, again, err := o.post(ctx)
		<-calls
		switch {
		case err == nil && id != o.id:
			return later, fmt.Errorf("over HTTP it is %s, and not %s", id, o.id)
		case err == nil:
			return later, nil
		case !again:
			return later, err
		}
		if later++; !pause(ctx, time.Second) {
			return later, context.Cause(ctx)
		}
	}
}

// gathering is how long the proxy waits for more processes to ask for the claim,
// once the first has.
const gathering = 4 * time.Second

// claimants holds whoever asks for the tenant's claim, once it has been decided;
// kills a fifth of the ingest processes then and whoever has it; lets the others go;
// and kills as many thieves later as it is told to.
func (t *tormentor) claimants(ctx context.Context, tenant string, s storming, out *stormed, claimed func()) {
	trap := t.proxy.armAll(after, func(c call) bool { return c.step == reserve && c.tenant == tenant })
	defer t.proxy.disarm(trap)
	var (
		all    []*held
		drains = map[int]bool{}
		owner  process
		full   <-chan time.Time
	)
	for gather := true; gather; {
		select {
		case h := <-trap.hit:
			if full == nil {
				full = time.After(gathering)
			}
			all = append(all, h)
			if h.role == ingesting {
				drains[h.pid] = true
			}
			if h.status == 200 {
				owner = h.process
				claimed()
			}
			gather = owner.pid == 0 || len(drains) < s.concurrent
		case <-full:
			gather = owner.pid == 0
			full = time.After(gathering)
		case <-ctx.Done():
			gather = false
		}
	}
	victims := map[int]bool{}
	if owner.pid != 0 {
		victims[owner.pid] = true
	}
	if owner.pid != 0 && !drains[owner.pid] {
		out.Others++
	}
	for _, pid := range slices.Sorted(maps.Keys(drains)) {
		if dead := len(victims) - out.Others; dead*5 < len(drains) {
			victims[pid] = true
		}
	}
	for pid := range victims {
		signal(pid, syscall.SIGKILL)
	}
	out.Processes, out.Killed = len(drains), len(victims)-out.Others
	for _, h := range all {
		h.release(!victims[h.pid])
	}
	t.say("storm: %s process %d has the claim and is killed, with %d of %d ingest processes between claim and submit", owner.role, owner.pid, out.Killed, out.Processes)
	s.struck()
	for {
		select {
		case h := <-trap.hit:
			if h.status != 200 || out.Thieves == s.thieves {
				h.release(true)
				continue
			}
			out.Thieves++
			go func() {
				select {
				case <-s.clear:
				case <-time.After(5 * time.Second):
				case <-ctx.Done():
				}
				signal(h.pid, syscall.SIGKILL)
				h.release(false)
				t.say("storm: %s process %d has stolen the claim and is killed", h.role, h.pid)
			}()
		case <-ctx.Done():
			return
		}
	}
}
