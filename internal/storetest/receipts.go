package storetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/access"
	"holdfast/internal/openai"
)

// RunReceipts runs the suite of access.Receipts.
func RunReceipts(t *testing.T, open func(T) access.Receipts) {
	t.Helper()
	run(t, ReceiptsCases(), open)
}

// ReceiptsCases is the suite of access.Receipts.
func ReceiptsCases() []Case[access.Receipts] {
	return []Case[access.Receipts]{
		{"intend/a full one and a bare one come back", receiptRoundTrip},
		{"intend/not beside another of its name", receiptThere},
		{"intend/again is its own lost write, complete or not", receiptAgain},
		{"complete/says how it ended, and nothing else changes", receiptComplete},
		{"complete/not what is complete", receiptOnce},
		{"complete/again is its own lost write", receiptCompleteAgain},
		{"complete/not what nobody intended", receiptMissing},
		{"complete/one of many is first", receiptRace},
		{"list/shelves are apart", receiptShelves},
		{"list/in order of time, page by page", receiptPages},
		{"list/limits", receiptLimits},
		{"a context that is over", receiptsInterrupted},
	}
}

// someReceipt has everything that an intent can have.
func someReceipt() access.Receipt {
	line := int64(9_999_999)
	return access.Receipt{
		ReceiptName: access.ReceiptName{Tenant: tenant(), Batch: "batch_" + unique(), StartedAt: stored(at(0)), RequestID: "req_" + unique()},
		Line:        &line, OnBehalfOf: "arn:aws:iam::111122223333:role/Submit+er", Key: access.KeyID(strings.Repeat("a1", 32)),
		Endpoint: "/v1/chat/completions", Model: awkward, RequestHash: strings.Repeat("0123456789abcdef", 4),
	}
}

func someCompletion() access.Completion {
	return access.Completion{
		Time: stored(at(time.Minute)), Outcome: access.Replied, Status: 200, ReplyHash: strings.Repeat("fedcba9876543210", 4), ReplyBytes: 1 << 40, Millis: 59_999,
		Usage: &openai.Usage{
			InputTokens: 1 << 40, InputTokensDetails: openai.InputTokensDetails{CachedTokens: 2}, OutputTokens: 3,
			OutputTokensDetails: openai.OutputTokensDetails{ReasoningTokens: 4}, TotalTokens: 5,
		},
	}
}

func bareReceipt() access.Receipt {
	return access.Receipt{ReceiptName: access.ReceiptName{Tenant: tenant(), StartedAt: stored(at(0)), RequestID: "req_" + unique()}}
}

// lookReceipt demands that want is the one receipt of its shelf.
func lookReceipt(t T, s access.Receipts, what string, want access.Receipt) {
	t.Helper()
	page, more, err := s.List(t.Context(), want.Tenant, want.Shelf(), "", 10)
	succeeds(t, "list", err)
	if len(page) != 1 || more {
		t.Fatalf("%s: %d receipts, more=%v", what, len(page), more)
	}
	same(t, what, page[0], want)
}

func receiptRoundTrip(t T, s access.Receipts) {
	zero := bareReceipt()
	zero.Line = new(int64) // the first line is not "no line"
	for _, r := range []access.Receipt{someReceipt(), bareReceipt(), zero} {
		succeeds(t, "intend", s.Intend(t.Context(), r))
		lookReceipt(t, s, "stored", r)
	}
}

// receiptChanges is each way in which a receipt of one name can be another.
func receiptChanges() map[string]func(*access.Receipt) {
	return map[string]func(*access.Receipt){
		"line":         func(r *access.Receipt) { r.Line = nil },
		"on_behalf_of": func(r *access.Receipt) { r.OnBehalfOf = "mallory" },
		"key":          func(r *access.Receipt) { r.Key = "key_other" },
		"endpoint":     func(r *access.Receipt) { r.Endpoint = "/v1/embeddings" },
		"model":        func(r *access.Receipt) { r.Model = "" },
		"request":      func(r *access.Receipt) { r.RequestHash = "" },
	}
}

func receiptThere(t T, s access.Receipts) {
	r := someReceipt()
	succeeds(t, "intend", s.Intend(t.Context(), r))
	for what, change := range receiptChanges() {
		other := r
		change(&other)
		refuses(t, "intend with another "+what, s.Intend(t.Context(), other), access.ErrReceipt)
	}
	lookReceipt(t, s, "stored", r)
}

func receiptAgain(t T, s access.Receipts) {
	r, c := someReceipt(), someCompletion()
	for range 2 {
		succeeds(t, "intend", s.Intend(t.Context(), r))
	}
	succeeds(t, "complete", s.Complete(t.Context(), r.ReceiptName, c))
	succeeds(t, "intend once more, late", s.Intend(t.Context(), r))
	r.Completion = &c
	lookReceipt(t, s, "stored", r)
}

func receiptComplete(t T, s access.Receipts) {
	bare := access.Completion{Time: stored(at(0)), Outcome: access.Unreachable}
	for _, r := range []access.Receipt{someReceipt(), bareReceipt()} {
		for _, c := range []access.Completion{someCompletion(), bare} {
			r.RequestID = "req_" + unique()
			r.Tenant = tenant()
			r.Completion = nil
			succeeds(t, "intend", s.Intend(t.Context(), r))
			succeeds(t, "complete", s.Complete(t.Context(), r.ReceiptName, c))
			r.Completion = &c
			lookReceipt(t, s, "stored", r)
		}
	}
}

func receiptOnce(t T, s access.Receipts) {
	r, c := someReceipt(), someCompletion()
	succeeds(t, "intend", s.Intend(t.Context(), r))
	succeeds(t, "complete", s.Complete(t.Context(), r.ReceiptName, c))
	for what, change := range map[string]func(*access.Completion){
		"time":     func(c *access.Completion) { c.Time = stored(at(time.Hour)) },
		"outcome":  func(c *access.Completion) { c.Outcome = access.Torn },
		"status":   func(c *access.Completion) { c.Status = 500 },
		"usage":    func(c *access.Completion) { c.Usage = nil },
		"reply":    func(c *access.Completion) { c.ReplyHash = "" },
		"bytes":    func(c *access.Completion) { c.ReplyBytes-- },
		"duration": func(c *access.Completion) { c.Millis++ },
	} {
		other := c
		change(&other)
		refuses(t, "complete with another "+what, s.Complete(t.Context(), r.ReceiptName, other), access.ErrReceipt)
	}
	r.Completion = &c
	lookReceipt(t, s, "stored", r)
}

func receiptCompleteAgain(t T, s access.Receipts) {
	r := someReceipt()
	for _, c := range []access.Completion{someCompletion(), {Time: stored(at(0)), Outcome: access.Torn, Status: 200}} {
		r.RequestID, r.Tenant, r.Completion = "req_"+unique(), tenant(), nil
		succeeds(t, "intend", s.Intend(t.Context(), r))
		for range 2 {
			succeeds(t, "complete", s.Complete(t.Context(), r.ReceiptName, c))
		}
		r.Completion = &c
		lookReceipt(t, s, "stored", r)
	}
}

func receiptMissing(t T, s access.Receipts) {
	r := someReceipt()
	refuses(t, "complete", s.Complete(t.Context(), r.ReceiptName, someCompletion()), access.ErrReceipt)
	page, more, err := s.List(t.Context(), r.Tenant, r.Shelf(), "", 10)
	if err != nil || more || len(page) != 0 {
		t.Errorf("%d receipts, more=%v, %v", len(page), more, err)
	}
}

func receiptRace(t T, s access.Receipts) {
	r := someReceipt()
	succeeds(t, "intend", s.Intend(t.Context(), r))
	mine := func(i int) access.Completion {
		c := someCompletion()
		c.ReplyBytes = int64(i)
		return c
	}
	errs := race(racers, func(i int) error { return s.Complete(t.Context(), r.ReceiptName, mine(i)) })
	c := mine(winner(t, errs, access.ErrReceipt))
	r.Completion = &c
	lookReceipt(t, s, "stored", r)
}

func receiptShelves(t T, s access.Receipts) {
	r := someReceipt()
	none, next, stranger := r, r, r
	none.Batch = ""
	next.Batch, next.StartedAt = "", r.StartedAt.Add(24*time.Hour)
	stranger.Tenant = tenant()
	all := []access.Receipt{r, none, next, stranger}
	for _, r := range all {
		succeeds(t, "intend", s.Intend(t.Context(), r))
	}
	for i, r := range all {
		lookReceipt(t, s, fmt.Sprintf("shelf %d", i), r)
	}
	if next.Shelf() != access.DayShelf(next.StartedAt) || none.Shelf() == next.Shelf() {
		t.Errorf("shelves %q and %q", none.Shelf(), next.Shelf())
	}
}

func receiptPages(t T, s access.Receipts) {
	first := someReceipt()
	var want []access.Receipt
	for _, i := range []int{4, 0, 3, 1, 2} {
		r := first
		// Two of one instant go by their ids.
		r.StartedAt = first.StartedAt.Add(time.Duration(i/2) * time.Second)
		r.RequestID = fmt.Sprintf("req_%d", i)
		succeeds(t, "intend", s.Intend(t.Context(), r))
		want = append(want, r)
	}
	slices.SortFunc(want, func(a, b access.Receipt) int { return strings.Compare(a.RequestID, b.RequestID) })
	for limit := 1; limit <= 6; limit++ {
		var got []access.Receipt
		for after, more := "", true; more; {
			var page []access.Receipt
			var err error
			page, more, err = s.List(t.Context(), first.Tenant, first.Shelf(), after, limit)
			succeeds(t, "list", err)
			if len(page) > limit || more && len(page) < limit || len(page) == 0 {
				t.Fatalf("a page of %d, limit %d, more=%v", len(page), limit, more)
			}
			got = append(got, page...)
			after = page[len(page)-1].ID()
		}
		if len(got) != len(want) {
			t.Fatalf("limit %d: %d receipts, want %d", limit, len(got), len(want))
		}
		for i := range want {
			same(t, fmt.Sprintf("limit %d, receipt %d", limit, i), got[i], want[i])
		}
	}
}

func receiptLimits(t T, s access.Receipts) {
	for _, limit := range []int{-1, 0, access.MaxReceipts + 1} {
		if _, _, err := s.List(t.Context(), tenant(), "batch_x", "", limit); err == nil {
			t.Errorf("a limit of %d is accepted", limit)
		}
	}
	for _, odd := range []string{"", strings.Repeat("x", 3000)} {
		if page, more, err := s.List(t.Context(), tenant(), odd, "", 1); err != nil || more || len(page) != 0 {
			t.Errorf("shelf %.20q: %d receipts, more=%v, %v", odd, len(page), more, err)
		}
	}
}

func receiptsInterrupted(t T, s access.Receipts) {
	r, other := someReceipt(), someReceipt()
	succeeds(t, "intend", s.Intend(t.Context(), r))
	interrupts(t, map[string]func(context.Context) error{
		"Intend":   func(ctx context.Context) error { return s.Intend(ctx, other) },
		"Complete": func(ctx context.Context) error { return s.Complete(ctx, r.ReceiptName, someCompletion()) },
		"List": func(ctx context.Context) error {
			_, _, err := s.List(ctx, r.Tenant, r.Shelf(), "", 1)
			return err
		},
	})
	lookReceipt(t, s, "stored", r)
}
