package memory

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"holdfast/internal/access"
)

// Receipts is access.Receipts over a Table.
type Receipts struct{ port }

var _ access.Receipts = (*Receipts)(nil)

// Intend is access.Receipts.Intend.
func (s *Receipts) Intend(ctx context.Context, r access.Receipt) error {
	return effect(ctx, s.faults, "Receipts.Intend", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		r := cloneReceipt(r)
		r.Completion = nil
		at := s.receipt(r.ReceiptName)
		if s.rules.must("receipts.absent", at < 0) {
			s.receipts = append(s.receipts, r)
			return nil
		}
		found := s.receipts[at]
		found.Completion = nil
		if s.rules.own("receipts.own", s.rules.must("receipts.own.equal", reflect.DeepEqual(found, r))) {
			return nil
		}
		return fmt.Errorf("intend: %w", access.ErrReceipt)
	})
}

// Complete is access.Receipts.Complete.
func (s *Receipts) Complete(ctx context.Context, n access.ReceiptName, c access.Completion) error {
	return effect(ctx, s.faults, "Receipts.Complete", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := s.receipt(n)
		if at < 0 {
			return fmt.Errorf("complete: %w", access.ErrReceipt)
		}
		want := cloneReceipt(access.Receipt{Completion: &c}).Completion
		found := s.receipts[at].Completion
		if s.rules.must("receipts.complete.open", found == nil) {
			s.receipts[at].Completion = want
			return nil
		}
		if s.rules.own("receipts.complete.own", s.rules.must("receipts.complete.own.equal", reflect.DeepEqual(found, want))) {
			return nil
		}
		return fmt.Errorf("complete: %w", access.ErrReceipt)
	})
}

// receipt is the place of the one of that name, -1 if there is none.
func (i *items) receipt(n access.ReceiptName) int {
	return slices.IndexFunc(i.receipts, func(r access.Receipt) bool {
		return r.Tenant == n.Tenant && r.Shelf() == n.Shelf() && r.ID() == n.ID()
	})
}

// List is access.Receipts.List.
func (s *Receipts) List(ctx context.Context, tenant, shelf, after string, limit int) ([]access.Receipt, bool, error) {
	type answer struct {
		page []access.Receipt
		more bool
	}
	a, err := call(ctx, s.faults, "Receipts.List", func() (a answer, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if limit < 1 || limit > access.MaxReceipts {
			return answer{}, fmt.Errorf("list receipts: limit %d is not within 1-%d", limit, access.MaxReceipts)
		}
		for _, r := range s.receipts {
			if r.Tenant == tenant && r.Shelf() == shelf && r.ID() > after {
				a.page = append(a.page, cloneReceipt(r))
			}
		}
		slices.SortFunc(a.page, func(a, b access.Receipt) int { return strings.Compare(a.ID(), b.ID()) })
		if a.more = len(a.page) > limit; a.more {
			a.page = a.page[:limit]
		}
		return a, nil
	})
	return a.page, a.more, err
}

func cloneReceipt(r access.Receipt) access.Receipt {
	r.StartedAt = millis(r.StartedAt)
	if r.Line != nil {
		line := *r.Line
		r.Line = &line
	}
	if r.Completion != nil {
		c := *r.Completion
		c.Time = millis(c.Time)
		if c.Usage != nil {
			u := *c.Usage
			c.Usage = &u
		}
		r.Completion = &c
	}
	return r
}
