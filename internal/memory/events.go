package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/batch"
)

// Events is batch.Events over a Table.
type Events struct{ port }

var _ batch.Events = (*Events)(nil)

// Record is batch.Events.Record.
func (s *Events) Record(ctx context.Context, e batch.Event) error {
	return effect(ctx, s.faults, "Events.Record", func() error {
		if err := e.Check(); err != nil {
			return fmt.Errorf("record event: %w", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		n := name{e.Tenant, e.Batch}
		_, there := s.events[n][e.ID()]
		if !s.rules.must("events.absent", !there) {
			return nil // told before
		}
		if s.events[n] == nil {
			s.events[n] = map[string]batch.Event{}
		}
		e.At, e.Seen = millis(e.At), millis(e.Seen)
		s.events[n][e.ID()] = e
		return nil
	})
}

// RecordAll is batch.Events.RecordAll.
func (s *Events) RecordAll(ctx context.Context, es []batch.Event) error {
	return effect(ctx, s.faults, "Events.RecordAll", func() error {
		for _, e := range es {
			if err := e.Check(); err != nil {
				return fmt.Errorf("record events: %w", err)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, e := range es {
			n := name{e.Tenant, e.Batch}
			if s.events[n] == nil {
				s.events[n] = map[string]batch.Event{}
			}
			e.At, e.Seen = millis(e.At), millis(e.Seen)
			s.events[n][e.ID()] = e
		}
		return nil
	})
}

// List is batch.Events.List.
func (s *Events) List(ctx context.Context, tenant, id, after string, limit int) ([]batch.Event, bool, error) {
	type answer struct {
		page []batch.Event
		more bool
	}
	a, err := call(ctx, s.faults, "Events.List", func() (a answer, err error) {
		if limit < 1 || limit > batch.MaxEvents {
			return a, fmt.Errorf("list events: limit %d is not within 1-%d", limit, batch.MaxEvents)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		all := s.events[name{tenant, id}]
		for _, id := range slices.Sorted(maps.Keys(all)) {
			if id <= after {
				continue
			}
			if len(a.page) == limit {
				a.more = true
				break
			}
			a.page = append(a.page, all[id])
		}
		return a, nil
	})
	return a.page, a.more, err
}

// EventsOf is a look at all events of a batch, oldest first.
func (t *Table) EventsOf(tenant, id string) (events []batch.Event) {
	t.items.mu.Lock()
	defer t.items.mu.Unlock()
	all := t.items.events[name{tenant, id}]
	for _, id := range slices.Sorted(maps.Keys(all)) {
		events = append(events, all[id])
	}
	return events
}
