package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"holdfast/internal/bridge"
)

// RunSends runs the suite of bridge.Sends.
func RunSends(t *testing.T, open func(T) bridge.Sends) {
	t.Helper()
	run(t, SendsCases(), open)
}

// SendsCases is the suite of bridge.Sends.
func SendsCases() []Case[bridge.Sends] {
	return []Case[bridge.Sends]{
		{"record/the first", sendFirst},
		{"record/not beside one that is there", sendThere},
		{"record/in place of the one that was read", sendReplace},
		{"record/not in place of one that came since", sendChanged},
		{"record/not in place of none", sendGone},
		{"record/again is its own lost write", sendAgain},
		{"record/one of many is first, and one of many replaces it", sendRace},
		{"last/unknown and foreign ones", sendUnknown},
		{"a context that is over", sendsInterrupted},
	}
}

// someSend is one of a request that exists in no other case.
func someSend() bridge.Send {
	return bridge.Send{
		Tenant: tenant(), Hash: bridge.Request{FileID: unique()}.Hash(), ID: "batch_" + unique(),
		At: at(0), ExpiresAt: at(time.Hour).Truncate(time.Second), Ver: 77,
	}
}

// after is the next send of the same request.
func after(s bridge.Send) bridge.Send {
	s.ID, s.At = "batch_"+unique(), s.At.Add(time.Second)
	return s
}

// last demands that s is the last send, at this ver.
func last(t T, p bridge.Sends, what string, s bridge.Send, ver int64) {
	t.Helper()
	s.Ver = ver
	same(t, what, value(p.Last(t.Context(), s.Tenant, s.Hash))(t, "last"), s)
}

// foundInstead demands that a record is refused with the send found.
func foundInstead(t T, what string, err error, found bridge.Send) {
	t.Helper()
	refuses(t, what, err, bridge.ErrChanged)
	e, ok := errors.AsType[*bridge.ChangedError](err)
	if !ok {
		t.Fatalf("%s: %v is no *ChangedError", what, err)
	}
	same(t, what+": found", e.Found, found)
}

func sendFirst(t T, p bridge.Sends) {
	s := someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	last(t, p, "stored", s, 1)
}

func sendThere(t T, p bridge.Sends) {
	s := someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	found := s
	found.Ver = 1
	foundInstead(t, "record another", p.Record(t.Context(), after(s), 0), found)
	last(t, p, "stored", s, 1)
}

func sendReplace(t T, p bridge.Sends) {
	s := someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	for ver := range int64(3) {
		s = after(s)
		succeeds(t, "replace", p.Record(t.Context(), s, ver+1))
		last(t, p, "stored", s, ver+2)
	}
}

func sendChanged(t T, p bridge.Sends) {
	s := someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	second := after(s)
	succeeds(t, "replace", p.Record(t.Context(), second, 1))
	found := second
	found.Ver = 2
	for _, seen := range []int64{1, 3} {
		foundInstead(t, "replace what was read before", p.Record(t.Context(), after(s), seen), found)
	}
	last(t, p, "stored", second, 2)
}

func sendGone(t T, p bridge.Sends) {
	s := someSend()
	foundInstead(t, "replace what is gone", p.Record(t.Context(), s, 1), bridge.Send{})
	refuses(t, "last", fault(p.Last(t.Context(), s.Tenant, s.Hash)), bridge.ErrNotFound)
}

func sendAgain(t T, p bridge.Sends) {
	s := someSend()
	for range 2 {
		succeeds(t, "record", p.Record(t.Context(), s, 0))
	}
	second := after(s)
	for range 2 {
		succeeds(t, "replace", p.Record(t.Context(), second, 1))
	}
	last(t, p, "stored", second, 2)
}

func sendRace(t T, p bridge.Sends) {
	s := someSend()
	for seen := range int64(2) {
		sends := make([]bridge.Send, racers)
		errs := race(racers, func(i int) error {
			sends[i] = after(s)
			return p.Record(t.Context(), sends[i], seen)
		})
		last(t, p, "stored", sends[winner(t, errs, bridge.ErrChanged)], seen+1)
	}
}

func sendUnknown(t T, p bridge.Sends) {
	s := someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	refuses(t, "another request's", fault(p.Last(t.Context(), s.Tenant, someSend().Hash)), bridge.ErrNotFound)
	refuses(t, "another tenant's", fault(p.Last(t.Context(), tenant(), s.Hash)), bridge.ErrNotFound)
	namesake := after(s)
	namesake.Tenant = tenant()
	succeeds(t, "record a namesake", p.Record(t.Context(), namesake, 0))
	last(t, p, "stored", s, 1)
	last(t, p, "the namesake", namesake, 1)
}

func sendsInterrupted(t T, p bridge.Sends) {
	s, other := someSend(), someSend()
	succeeds(t, "record", p.Record(t.Context(), s, 0))
	interrupts(t, map[string]func(context.Context) error{
		"Record":          func(ctx context.Context) error { return p.Record(ctx, other, 0) },
		"Record in place": func(ctx context.Context) error { return p.Record(ctx, after(s), 1) },
		"Last":            func(ctx context.Context) error { return fault(p.Last(ctx, s.Tenant, s.Hash)) },
	})
	last(t, p, "stored", s, 1)
}
